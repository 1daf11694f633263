"""Sources: bundled, files, folders, users' own prompts, data sets, and their refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qualify.errors import CellError, UsageError
from qualify.paths import corpora_dir
from qualify.prompts.exact import build
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.sources import open_source
from qualify.prompts.tokens import Tokenizer


def spec(source: str | Path, **changes: object) -> PromptSpec:
    base = PromptSpec("test", "own", str(source), 40, 2, 0)
    return replace(base, **changes)  # type: ignore[arg-type]


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), "utf-8")
    return path


QUESTION = "Explain to a newcomer how a prefix cache decides which tokens it may use again. "
TALK = {
    "messages": [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Who wrote the first of these letters, and to whom?"},
        {"role": "assistant", "content": "Elizabeth wrote it to her sister Jane. " * 12},
        {"role": "user", "content": "And the second one?"},
    ]
}


def test_the_bundled_corpora_hold_texts_and_never_their_licences() -> None:
    for name in ("corpora/code", "corpora/prose", "corpora/mixed"):
        corpus = open_source(name)
        assert corpus.chars > 1_000_000
        assert not any("LICENSE" in d.name or "SOURCES" in d.name for d in corpus.documents)
    every = [p for p in corpora_dir().rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in every) <= 6_000_000
    for project in (corpora_dir() / "code").iterdir():
        assert (project / "LICENSE").is_file()


def test_no_long_passage_stands_twice_in_the_bundled_corpora() -> None:
    seen: dict[str, str] = {}
    for name in ("corpora/code", "corpora/prose"):
        for document in open_source(name).documents:
            for block in document.text.split("\n\n"):
                flat = " ".join(block.split())
                if len(flat) >= 200:
                    assert flat not in seen, f"{document.name} repeats {seen[flat]}"
                    seen[flat] = document.name


def test_the_mixed_corpus_takes_code_and_prose_in_turn() -> None:
    kinds = [d.name.split("/")[0] for d in open_source("corpora/mixed").documents]
    assert set(kinds[0::2]) == {"code"}
    assert set(kinds[1::2]) == {"prose"}


def test_an_unknown_source_is_refused_with_what_there_is() -> None:
    for name in ("corpora/poems", "no/such/file.txt"):
        with pytest.raises(UsageError) as caught:
            open_source(name)
        assert "corpora/prose" in caught.value.remedy


def test_a_source_with_too_little_text_says_how_much_it_has(
    words: Tokenizer, tmp_path: Path
) -> None:
    text = (corpora_dir() / "prose" / "newton-opticks.txt").read_text("utf-8")[5_000:14_000]
    file = tmp_path / "short.txt"
    file.write_text(text, "utf-8")
    total = len(words.encode(text.strip()))
    wanted = spec(file, tokens=total // 3, count=5)
    with pytest.raises(CellError, match=f"{total:,} tokens .* enough for [23] of the 5") as caught:
        build(wanted, words)
    assert "repeat: true" in caught.value.remedy
    assert "fewer" in caught.value.remedy
    repeated = build(replace(wanted, repeat=True), words)
    assert [len(p.ids) for p in repeated] == [total // 3] * 5
    assert [p.klass for p in repeated[:2]] == ["natural"] * 2
    assert repeated[-1].klass == "repetitive"
    assert len({p.sha256 for p in repeated}) == 5


def test_a_source_just_long_enough_is_used_to_its_end(words: Tokenizer, tmp_path: Path) -> None:
    text = (corpora_dir() / "prose" / "newton-opticks.txt").read_text("utf-8")[5_000:14_000]
    file = tmp_path / "short.txt"
    file.write_text(text, "utf-8")
    total = len(words.encode(text.strip()))
    assert len(build(spec(file, tokens=total - 20, count=1), words)[0].ids) == total - 20


def test_f068_filler_repeated_to_a_length_is_labelled_repetitive(
    words: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "filler.txt"
    file.write_text("The quick brown fox jumps over the lazy dog near the river bank. " * 4_000)
    prompts = build(spec(file, tokens=4_096, count=2), words)
    assert [p.klass for p in prompts] == ["repetitive"] * 2
    assert all(p.compress_ratio < 0.2 for p in prompts)
    natural = build(spec("corpora/prose", tokens=4_096), words)
    assert [p.klass for p in natural] == ["natural"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "日本語の文章です。これは長い文で、空白がありません。" * 3 + "漢字とかなが混ざります。",
        "Привет, мир! Ёлка стоит в углу, и дети поют песни о зиме. Снег идёт весь день. ",  # noqa: RUF001
        "Zażółć gęślą jaźń 🙂 naïve café — ½ of it… 👩‍👩‍👧 and “quotes” everywhere. ",
        "مرحبا بالعالم، هذا نص عربي طويل بما يكفي للاختبار. ",
    ],
    ids=["japanese", "russian", "marks", "arabic"],
)
def test_text_in_any_script_is_cut_to_exact_shapes(
    words: Tokenizer, tiny: Tokenizer, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "script.txt"
    file.write_text("\n\n".join(f"{i}. {text}" for i in range(300)), "utf-8")
    for tokenizer in (words, tiny):
        for tokens in (17, 255, 1_000):
            for prompt in build(spec(file, tokens=tokens, count=3), tokenizer, need_text=True):
                assert len(prompt.ids) == tokens
                assert tokenizer.backend.encode(prompt.text).ids == list(prompt.ids)
                assert "\ufffd" not in prompt.text


def test_a_control_token_in_a_text_ends_a_document_and_never_enters_a_prompt(
    words: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "dump.txt"
    text = (corpora_dir() / "prose" / "newton-opticks.txt").read_text("utf-8")[5_000:60_000]
    parts = [text[i : i + 700] for i in range(0, len(text), 700)]
    file.write_text("<|endoftext|>".join(parts), "utf-8")
    for prompt in build(spec(file, tokens=1_000, count=4), words):
        assert not words.special_ids & set(prompt.ids)


def test_users_prompts_are_joined_and_cut_to_the_shape(words: Tokenizer, tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}: {QUESTION * (1 + i % 3)}"} for i in range(30)]
    file = lines(tmp_path / "own.jsonl", *rows)
    prompts = build(spec(file, tokens=60, count=4), words)
    assert [len(p.ids) for p in prompts] == [60] * 4
    bodies = [p.text.partition("\n\n")[2] for p in prompts]
    assert all(any(b.startswith(r["prompt"][:20]) for r in rows) for b in bodies)
    assert len({b[:20] for b in bodies}) == 4


def test_users_conversations_take_the_chat_template_and_end_with_the_user(
    words: Tokenizer, tmp_path: Path
) -> None:
    shared = {
        "conversations": [
            {"from": "human", "value": "Tell me about rings of colour. " * 9},
            {"from": "gpt", "value": "They appear between two glasses. " * 9},
            {"from": "human", "value": "Why? " * 4},
        ]
    }
    file = lines(tmp_path / "talk.jsonl", TALK, shared, {"prompt": QUESTION * 4}, TALK, shared)
    for tokens in (60, 150, 400):
        for prompt in build(spec(file, tokens=tokens, count=1, template=True), words):
            assert words.backend.encode(prompt.text).ids == list(prompt.ids)
            assert len(prompt.ids) == tokens
            assert prompt.text.endswith("<|im_end|>\n<|im_start|>assistant\n")
            turns = prompt.text.split("<|im_start|>")[2:]
            roles = [t.split("\n")[0] for t in turns]
            assert roles == ["user", "assistant"] * (len(roles) // 2)


def test_every_bad_line_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(
        '{"prompt": "fine"}\n'
        "{prompt: no}\n"
        "[1, 2]\n"
        '{"question": "x"}\n'
        '\n{"messages": [{"role": "robot", "content": "x"}]}\n'
        '{"prompt": ""}\n'
        '{"conversations": "hello"}\n',
        "utf-8",
    )
    with pytest.raises(UsageError) as caught:
        open_source(str(file))
    for number, reason in (
        (2, "not JSON"),
        (3, "not a JSON object"),
        (4, "no prompt, messages or conversations"),
        (6, "role 'robot'"),
        (7, "prompt is empty"),
    ):
        assert f"line {number}: " in caught.value.message
        assert reason in caught.value.message
    assert "and 1 more" in caught.value.message
    assert "line 1:" not in caught.value.message
    assert '"prompt"' in caught.value.remedy


def test_a_control_token_in_a_users_prompt_is_refused_by_its_line(
    words: Tokenizer, tmp_path: Path
) -> None:
    file = lines(tmp_path / "own.jsonl", {"prompt": QUESTION}, {"prompt": "<|im_start|>user\nhi"})
    with pytest.raises(UsageError, match=r"line 2: the control token '<\|im_start\|>'"):
        build(spec(file), words)


def test_a_data_set_is_read_from_a_local_file_without_a_network(
    words: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    file = lines(
        tmp_path / "set.jsonl", *[{"id": i, "question": f"{i} {QUESTION}"} for i in range(20)]
    )
    prompts = build(spec(f"dataset:{file}", tokens=50, count=3), words)
    assert [len(p.ids) for p in prompts] == [50] * 3
    with pytest.raises(UsageError, match="no column answer; it has id, question"):
        open_source(f"dataset:{file}#answer")


def test_a_data_set_without_the_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)  # what import sees when it is absent
    with pytest.raises(UsageError, match="not installed") as caught:
        open_source("dataset:anything")
    assert "pip install datasets" in caught.value.remedy
