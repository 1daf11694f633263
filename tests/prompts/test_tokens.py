"""The tokenizer wrapper: identity, control tokens, templates, and the tokenizer of a .gguf."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qualify.errors import UsageError
from qualify.prompts.digest import describe, plan_digest
from qualify.prompts.gguf import PRE_TOKENIZERS, read_metadata
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.template import ChatTemplate, Message, TemplateRefusal
from qualify.prompts.tokens import Tokenizer
from tests.prompts.conftest import texts, train

SAMPLE = "Don't stop: naïve café № 12345 — 日本語 🙂\r\n\n\n\tif (x<=10) {  y += 1;\t}  \n \n end "


def write_gguf(path: Path, pairs: dict[str, Any]) -> Path:
    """A header with no tensors, as the GGUF format lays it out."""

    def text(value: str) -> bytes:
        data = value.encode()
        return struct.pack("<Q", len(data)) + data

    def item(value: Any) -> tuple[int, bytes]:
        if isinstance(value, bool):
            return 7, struct.pack("<?", value)
        if isinstance(value, int):
            return 4, struct.pack("<I", value)
        if isinstance(value, str):
            return 8, text(value)
        kind = item(value[0])[0]
        return 9, struct.pack("<IQ", kind, len(value)) + b"".join(item(v)[1] for v in value)

    body = b""
    for key, value in pairs.items():
        kind, data = item(value)
        body += text(key) + struct.pack("<I", kind) + data
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + body)
    return path


def gguf_pairs(**changes: Any) -> dict[str, Any]:
    saved = json.loads(train(2_000).to_str())
    vocabulary = saved["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = [m if isinstance(m, str) else " ".join(m) for m in saved["model"]["merges"]]
    pairs: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}",
    }
    return {k: v for k, v in {**pairs, **changes}.items() if v is not None}


def test_a_gguf_tokenizer_gives_the_ids_of_the_tokenizer_it_was_written_from(
    tmp_path: Path,
) -> None:
    backend = train(2_000)
    ours = Tokenizer.load(write_gguf(tmp_path / "m.gguf", gguf_pairs()))
    for text in (SAMPLE, *texts()):
        assert ours.encode(text) == backend.encode(text, add_special_tokens=False).ids
        assert ours.decode(ours.encode(text)) == text


def test_a_gguf_header_is_read_as_the_reference_reader_reads_it(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    file = write_gguf(tmp_path / "m.gguf", gguf_pairs())
    fields = gguf.GGUFReader(file).fields
    for key, value in read_metadata(file).items():
        assert fields[key].contents() == value


def test_a_digit_is_a_token_of_its_own_where_the_file_says_smollm(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(
        write_gguf(tmp_path / "m.gguf", gguf_pairs(**{"tokenizer.ggml.pre": "smollm"}))
    )
    assert len(tokenizer.encode("1815")) == 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokenizer.ggml.model": "llama"}, "holds a llama tokenizer"),
        ({"tokenizer.ggml.model": None}, "holds a missing tokenizer"),
        ({"tokenizer.ggml.pre": "tekken"}, "splits text the 'tekken' way"),
    ],
)
def test_a_gguf_of_a_kind_that_cannot_be_built_exactly_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    file = write_gguf(tmp_path / "m.gguf", gguf_pairs(**changes))
    with pytest.raises(UsageError, match=reason) as caught:
        Tokenizer.load(file)
    assert "tokenizer.json" in caught.value.remedy


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    for name, data in (("a", b""), ("b", b"GGUF"), ("c", b"PK\x03\x04" * 20)):
        file = tmp_path / f"{name}.gguf"
        file.write_bytes(data)
        with pytest.raises(UsageError, match="not a GGUF file"):
            Tokenizer.load(file)


def test_the_bos_is_added_only_where_the_file_asks_for_it(tmp_path: Path) -> None:
    plain = Tokenizer.load(write_gguf(tmp_path / "a.gguf", gguf_pairs()))
    added = gguf_pairs(**{"tokenizer.ggml.add_bos_token": True})
    with_bos = Tokenizer.load(write_gguf(tmp_path / "b.gguf", added))
    assert plain.prefix == ()
    assert with_bos.prefix == (0,)
    assert with_bos.count("a word") == plain.count("a word") + 1
    assert plain.sha256 != with_bos.sha256


def test_a_folder_without_tokenizer_json_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"No tokenizer\.json") as caught:
        Tokenizer.load(tmp_path)
    assert "transformers" in caught.value.remedy
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a tokenizer"):
        Tokenizer.load(tmp_path)


def test_a_template_runs_in_a_sandbox() -> None:
    attack = ChatTemplate("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(UsageError, match="cannot be rendered"):
        attack.render([Message("user", "x")])
    with pytest.raises(UsageError, match="not valid Jinja"):
        ChatTemplate("{% for %}").render([Message("user", "x")])


def test_a_template_may_refuse_a_system_message_and_be_told_about_thinking() -> None:
    source = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% generation %}{{ messages[0].content }}{% endgeneration %}"
        "{% if enable_thinking is defined and not enable_thinking %}<no-think>{% endif %}"
    )
    template = ChatTemplate(source)
    with pytest.raises(TemplateRefusal, match="no system"):
        template.render([Message("system", "x"), Message("user", "y")])
    assert template.render([Message("user", "y")]) == "y"
    assert template.render([Message("user", "y")], thinking=False) == "y<no-think>"


def test_importing_the_prompt_modules_loads_nothing_heavy() -> None:
    code = (
        "import sys, qualify.prompts.exact, qualify.prompts.sessions, qualify.prompts.digest\n"
        "heavy = {'tokenizers', 'jinja2', 'datasets', 'transformers', 'numpy', 'torch', 'gguf'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_digest_follows_every_part_that_decides_the_prompts() -> None:
    spec = PromptSpec("c", "w", "corpora/prose", 256, 4, 0)
    from dataclasses import fields, replace

    changed = {"int": 99, "str": "other", "bool": True, "int | None": 7, "bool | None": True}
    digests = {
        plan_digest(spec, "a", "b"),
        plan_digest(spec, "x", "b"),
        plan_digest(spec, "a", "x"),
    }
    for field in fields(spec):
        other = replace(spec, **{field.name: changed[str(field.type)]})
        digests.add(plan_digest(other, "a", "b"))
    assert len(digests) == 3 + len(fields(spec))
    assert plan_digest(spec, "a", "b") == plan_digest(replace(spec), "a", "b")


def test_a_description_says_how_many_tokens_will_be_sent() -> None:
    plain = describe(PromptSpec("c", "w", "corpora/prose", 1_024, 4, 0))
    assert (plain.shape, plain.requests, plain.prompt_tokens) == ("1,024", 4, 4_096)
    talk = describe(PromptSpec("c", "w", "corpora/prose", 1_000, 2, 0, turns=3, growth=500))
    assert (talk.shape, talk.requests) == ("1,000 +500 x 2", 6)
    assert talk.prompt_tokens == 2 * (1_000 + 1_500 + 2_000)
    assert talk.longest == 2_000


def test_every_known_split_pattern_parts_the_sample_without_losing_a_byte(tmp_path: Path) -> None:
    for pre in PRE_TOKENIZERS:
        file = write_gguf(tmp_path / "m.gguf", gguf_pairs(**{"tokenizer.ggml.pre": pre}))
        tokenizer = Tokenizer.load(file)
        assert tokenizer.decode(tokenizer.encode(SAMPLE)) == SAMPLE
