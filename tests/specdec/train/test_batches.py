"""Generated data: exact lengths, the same for the same seed, answers that are in the text."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from specdec.train.batches import (
    BatchPlan,
    Corpus,
    Mixture,
    read_stream,
    sequence,
    spread_positions,
    write_stream,
)
from specdec.train.recall import CODE_FAMILIES, ask, make_facts, random_code
from specdec.train.vocabulary import Encoder

CHECKPOINT = Path(__file__).parents[3] / "fixtures" / "models" / "tiny-qwen3.5"
TEXT = "The quick brown fox jumps over the lazy dog, and then it rests in the shade. " * 400
KINDS = ("code", "prose", "recall", "lookup", "repeat", "chat")


@pytest.fixture(scope="module")
def encode() -> Encoder:
    return Encoder(CHECKPOINT / "tokenizer.json")


@pytest.fixture(scope="module")
def corpus(encode: Encoder) -> Corpus:
    ids = encode(TEXT)
    return Corpus(ids, ids[::-1].copy())


@pytest.mark.parametrize("length", [257, 1025, 65_537])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_sequence_has_exactly_its_length(
    kind: str, length: int, corpus: Corpus, encode: Encoder
) -> None:
    ids, weights = sequence(random.Random(length), kind, length, corpus, encode)
    assert len(ids) == len(weights) == length
    assert int(ids.max()) < 4096
    assert int(weights.min()) >= 1


def test_what_a_recall_question_asks_for_stands_in_the_text(
    corpus: Corpus, encode: Encoder
) -> None:
    for number in range(40):
        ids, weights = sequence(random.Random(number), "recall", 1025, corpus, encode)
        text = encode.tokenizer.decode(ids[weights == 1].tolist(), skip_special_tokens=False)
        answer = encode.tokenizer.decode(ids[weights > 1].tolist(), skip_special_tokens=False)
        codes = re.findall(r"[A-Z0-9]+(?:-[A-Z0-9]+)+", answer)
        assert all(code in text for code in codes)


def test_an_answer_names_the_codes_of_the_facts_it_was_asked_about() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        facts = make_facts(rng, 5, rng.choice(("named", "plain", "numbered")))
        question, answer = ask(rng, facts, 5)
        for fact in facts:
            if fact.subject and f" {fact.subject}" in question and " for " in question:
                assert fact.code in answer
        assert any(fact.code in answer for fact in facts)


def test_codes_of_every_family_differ_between_draws() -> None:
    rng = random.Random(0)
    for family in range(CODE_FAMILIES):
        assert len({random_code(rng, family) for _ in range(200)}) > 150


def test_positions_with_jumps_only_ever_grow_and_stay_in_range() -> None:
    for seed in range(50):
        positions = spread_positions(random.Random(seed), 1024, 1_048_576)
        assert int(np.diff(positions).min()) >= 1
        assert int(positions[-1]) < 1_048_576


def test_a_stream_comes_back_as_it_was_written(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 4096, 5000).astype(np.uint16)
    write_stream(tmp_path / "x.u16.xz", ids)
    assert np.array_equal(read_stream(tmp_path / "x.u16.xz"), ids)


def test_a_batch_depends_on_its_seed_and_step_alone(tmp_path: Path, encode: Encoder) -> None:
    ids = encode(TEXT)
    for name in ("code", "prose"):
        write_stream(tmp_path / f"{name}.u16.xz", ids)

    def plan(seed: str) -> BatchPlan:
        return BatchPlan(
            tmp_path,
            CHECKPOINT / "tokenizer.json",
            mixture=Mixture(),
            sequences=4,
            length=256,
            spread=0.5,
            position_limit=10_000,
            seed=seed,
            steps=8,
        )

    first, again, other = plan("a"), plan("a"), plan("b")
    _ = first[0], first[1]
    assert first[5].ids.equal(again[5].ids)
    assert first[5].positions.equal(again[5].positions)
    assert not first[5].ids.equal(first[6].ids)
    assert not first[5].ids.equal(other[5].ids)
    assert first[0].ids.shape == (4, 257)
    assert first[0].weights.shape == (4, 256)
