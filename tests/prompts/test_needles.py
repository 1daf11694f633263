"""Codes at stated depths: exact sizes, true positions, nothing that makes retrieval ambiguous."""

from __future__ import annotations

import pytest

from qualify.errors import CellError
from qualify.paths import data_root
from qualify.prompts.corpus import Corpus, Document, Ring, make_corpus, ring
from qualify.prompts.needle_draft import Haystack, Statement
from qualify.prompts.needles import build_haystack
from qualify.prompts.sources import open_source
from qualify.prompts.tokens import Tokenizer

MODEL = data_root() / "fixtures/models/tiny-qwen3.5"
CODES = ("K7-4410", "Q1-0093", "Z5-5582", "A8-7719", "L2-2046")
DEPTHS = (0.05, 0.3, 0.5, 0.7, 0.95)
TAIL = "\n\nList all five codes that appear in the text.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(MODEL)


@pytest.fixture(scope="module")
def prose(tokenizer: Tokenizer) -> Ring:
    return ring(open_source("corpora/prose"), tokenizer)


def build(tokens: int, loop: Ring, key: str = "k", *, repeat: bool = False) -> Haystack:
    statements = tuple(
        Statement(f"The secret code is {code}.", code, depth)
        for code, depth in zip(CODES, DEPTHS, strict=True)
    )
    return build_haystack(
        tokens, statements, ("<|im_start|>user\n", TAIL), loop, loop.tokenizer, (key,),
        repeat=repeat,
    )  # fmt: skip


@pytest.mark.parametrize("tokens", [400, 999, 1000, 1001, 4096, 20000])
def test_a_prompt_has_exactly_its_size_and_its_text_encodes_back(
    tokens: int, tokenizer: Tokenizer, prose: Ring
) -> None:
    for key in "abcd":
        found = build(tokens, prose, key)
        assert len(found.ids) == tokens
        assert found.exact
        assert tuple(tokenizer.encode(found.text)) == found.ids
        assert found.text.startswith("<|im_start|>user\n")
        assert found.text.endswith(TAIL)


def test_each_code_stands_once_where_it_is_said_to_stand(tokenizer: Tokenizer, prose: Ring) -> None:
    for key in "abcdef":
        found = build(4000, prose, key)
        for placed in found.needles:
            rest = tokenizer.decode(found.ids[placed.position :])
            assert rest.lstrip().startswith(placed.code)
            assert not tokenizer.decode(found.ids[placed.position + 1 :]).startswith(placed.code)
            assert found.text.count(placed.code) == 1
            assert placed.depth == pytest.approx(placed.position / 4000, abs=1e-6)
            assert placed.depth == pytest.approx(placed.asked_depth, abs=0.02)


def test_statements_stand_between_sentences_where_one_ends_nearby(prose: Ring) -> None:
    ends = 0
    for key in "abcdef":
        found = build(20000, prose, key)
        for placed in found.needles:
            before, _, after = found.text.partition(f" The secret code is {placed.code}.")
            ends += before[-1] in ".!?"
            assert not before[-1].isspace()
            assert after.startswith(" "), "never inside a word"
    assert ends >= 25


def test_the_same_key_gives_the_same_prompt_and_another_key_other_text(prose: Ring) -> None:
    assert build(2000, prose).ids == build(2000, prose).ids
    assert build(2000, prose).text[200:400] != build(2000, prose, "other").text[200:400]


def test_a_size_without_room_is_refused_with_the_least_one(prose: Ring) -> None:
    with pytest.raises(CellError, match="no room for 5 codes") as refused:
        build(120, prose)
    least = int("".join(c for c in refused.value.remedy if c.isdigit()))
    assert len(build(least, prose).ids) == least


def short_ring(tokenizer: Tokenizer, text: str) -> Ring:
    corpus: Corpus = make_corpus("short", [Document("a", text)])
    return Ring(corpus, tokenizer)


def prose_text(chars: int) -> str:
    return next(iter(open_source("corpora/prose").documents)).text[:chars]


def test_a_text_that_is_too_short_is_repeated_only_when_told(tokenizer: Tokenizer) -> None:
    loop = short_ring(tokenizer, prose_text(6000))
    with pytest.raises(CellError, match="needs more") as refused:
        build(5000, loop)
    assert "repeat: true" in refused.value.remedy
    found = build(5000, loop, repeat=True)
    assert found.repeated
    assert len(found.ids) == 5000


def test_a_text_that_repeats_a_passage_is_refused(tokenizer: Tokenizer) -> None:
    line = prose_text(3000).replace("\n", " ")[:400]
    loop = short_ring(tokenizer, f"{line}\nBetween them stands another line.\n" * 30)
    with pytest.raises(CellError, match="stand in it before"):
        build(1100, loop)
    assert len(build(1100, loop, repeat=True).ids) == 1100


def test_a_refrain_in_a_long_text_is_no_repetition(tokenizer: Tokenizer) -> None:
    line = prose_text(3000).replace("\n", " ")[:200]
    text = f"{line}\n{prose_text(60_000)[3000:30_000]}\n{line}\n{prose_text(60_000)[30_000:]}"
    assert len(build(17_000, short_ring(tokenizer, text)).ids) == 17_000


def test_a_text_that_holds_what_looks_like_a_code_is_refused(tokenizer: Tokenizer) -> None:
    text = prose_text(9000).replace(" a ", " B4-1234 a ")
    with pytest.raises(CellError, match="looks like a code"):
        build(1500, short_ring(tokenizer, text))


@pytest.mark.parametrize("kind", ["words", "tiny", "with_bos"])
def test_any_tokenizer_gets_exactly_as_many_ids_with_the_codes_in_them(
    kind: str, request: pytest.FixtureRequest
) -> None:
    other = request.getfixturevalue(kind)
    found = build(3001, Ring(open_source("corpora/prose"), other))
    assert len(found.ids) == 3001
    for placed in found.needles:
        assert other.decode(found.ids[placed.position :]).lstrip().startswith(placed.code)
    if found.exact:
        around = len(other.prefix), 3001 - len(other.suffix)
        assert tuple(other.encode(found.text)) == found.ids[slice(*around)]


@pytest.mark.parametrize("kind", ["lossy", "doubling"])
def test_a_tokenizer_that_changes_codes_cannot_be_used(
    kind: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(CellError, match="does not keep the code"):
        build(3001, Ring(open_source("corpora/prose"), request.getfixturevalue(kind)))
