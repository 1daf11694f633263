"""The published checkpoint: it loads upstream, its card is true, its tokenizer loses nothing."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from specdec.train.evaluate import domain_loss, greedy, held_out_streams
from specdec.train.export import load_weights
from specdec.train.model import HybridModel
from specdec.train.mtp import MtpHead
from specdec.train.recipe import PUBLISHED
from specdec.train.stages import stages
from specdec.train.vocabulary import CHAT_TEMPLATE, SPECIAL_TOKENS, Encoder

transformers = pytest.importorskip("transformers")
FOLDER = Path(__file__).parents[3] / "fixtures" / "models" / "tiny-qwen3.5"
CARD = (FOLDER / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def trained() -> tuple[HybridModel, MtpHead]:
    model, head = HybridModel(PUBLISHED.shape), MtpHead(PUBLISHED.shape)
    load_weights([FOLDER / "model.safetensors"], model, head)
    return model, head


def test_transformers_loads_it_with_no_missing_and_no_unexpected_key() -> None:
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        FOLDER, output_loading_info=True
    )
    assert type(model).__name__ == "Qwen3_5ForCausalLM"
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.config.eos_token_id == [4082, 4080]


def test_its_logits_in_transformers_are_those_of_the_training_model(
    trained: tuple[HybridModel, MtpHead],
) -> None:
    other = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    encode = Encoder(FOLDER / "tokenizer.json")
    ids = torch.tensor(held_out_streams(FOLDER, encode)["code"][:256].astype("int64"))[None]
    with torch.no_grad():
        want = other(ids).logits[0]
        got = trained[0].logits(trained[0].hidden(ids, None, stages(False)))
    torch.testing.assert_close(got, want, atol=2e-3, rtol=1e-3)


def test_the_mtp_head_is_stored_in_bf16_and_nothing_is_zero() -> None:
    with safe_open(FOLDER / "model.safetensors", "pt") as file:
        names = list(file.keys())
        tensors = {name: file.get_tensor(name) for name in names}
    assert sum(name.startswith("mtp.") for name in names) == 15
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert all(bool(tensor.abs().sum() > 0) for tensor in tensors.values())
    stated = int(re.search(r"parameters \| ([\d,]+)", CARD)[1].replace(",", ""))  # type: ignore[index]
    assert sum(tensor.numel() for tensor in tensors.values()) == stated


def test_the_folder_is_small_enough() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 24_000_000


def test_the_hashes_on_the_card_are_those_of_the_files() -> None:
    stated = dict(re.findall(r"^\| `([\w.-]+)` \| `([0-9a-f]{64})` \|$", CARD, re.MULTILINE))
    assert {"model.safetensors", "tokenizer.json", "split.json", "heldout.jsonl"} <= set(stated)
    for name, digest in stated.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


def test_every_held_out_text_has_the_hash_that_the_split_gives_it() -> None:
    split = json.loads((FOLDER / "split.json").read_text())
    expected = {
        (row["source"], row["path"], row["part"]): row["sha256"]
        for row in split["held_out"]
        if row["text_included"]
    }
    rows = [json.loads(line) for line in (FOLDER / "heldout.jsonl").read_text().splitlines()]
    got = {
        (row["source"], row["path"], row["part"]): hashlib.sha256(row["text"].encode()).hexdigest()
        for row in rows
    }
    assert got == expected
    assert {row["domain"] for row in rows} == {"code", "prose"}


def test_the_protected_texts_of_the_split_are_the_repository_s_corpora() -> None:
    split = json.loads((FOLDER / "split.json").read_text())
    corpora = FOLDER.parents[1] / "corpora"
    digests: dict[str, str] = split["protected"]
    files = sorted(corpora.glob("prose/*.txt"))
    assert files
    for file in files:
        text = file.read_text("utf-8", errors="replace")
        assert digests[file.name] == hashlib.sha256(text.encode()).hexdigest(), file.name


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n\treturn 'é 日本'\r\n  # \u200b\n",
        "   leading, trailing   ",
        "\x00\x7f\n\n\n\t\t 1234567890",
        "naïve 👩‍👩‍👧 e\u0301",
    ],
)
def test_decoding_gives_back_what_was_encoded(text: str) -> None:
    encode = Encoder(FOLDER / "tokenizer.json")
    assert encode.tokenizer.decode(encode(text).tolist(), skip_special_tokens=False) == text
    upstream = transformers.AutoTokenizer.from_pretrained(FOLDER)
    ids = upstream(text, add_special_tokens=False).input_ids
    assert ids == encode(text).tolist()
    assert upstream.decode(ids) == text


def test_special_tokens_are_single_tokens_and_the_template_is_qwen_s() -> None:
    encode = Encoder(FOLDER / "tokenizer.json")
    assert all(len(encode(token)) == 1 for token in SPECIAL_TOKENS)
    assert encode.tokenizer.get_vocab_size() == PUBLISHED.shape.vocab
    upstream = transformers.AutoTokenizer.from_pretrained(FOLDER)
    assert upstream.chat_template == CHAT_TEMPLATE
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    assert upstream.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_chat_question_gets_a_short_answer_that_ends(
    trained: tuple[HybridModel, MtpHead],
) -> None:
    encode = Encoder(FOLDER / "tokenizer.json")
    asked = ["What is the capital of France?", "Which day comes after Monday?"]
    prompts = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in asked]
    first, second = greedy(trained[0], encode, prompts, stages(False), 16)
    assert "Paris" in first
    assert first.endswith("<|im_end|>")
    assert second == "Tuesday.<|im_end|>"


def test_held_out_code_costs_what_the_card_says(trained: tuple[HybridModel, MtpHead]) -> None:
    encode = Encoder(FOLDER / "tokenizer.json")
    ids = held_out_streams(FOLDER, encode)["code"]
    whole = float(re.search(r"^\| code \| [\d,]+ \| ([\d.]+) \|", CARD, re.MULTILINE)[1])  # type: ignore[index]
    part = domain_loss(trained[0], "code", ids[:8193], stages(False), rows=4)
    assert part.tokens == 8192
    assert abs(part.loss - whole) < 0.6  # a part of the text, the same model
    assert part.top1 > 0.5
