"""The 50-token overlap check finds what it must and cuts held-out text clean."""

from __future__ import annotations

import numpy as np
import pytest
from specdec.train.split import SpanIndex, first_overlap, is_held_out, window_hashes


def tokens(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4096, count).astype(np.uint16)


def plain_windows(ids: np.ndarray, span: int) -> set[tuple[int, ...]]:
    return {tuple(ids[i : i + span].tolist()) for i in range(len(ids) - span + 1)}


def test_independent_texts_share_no_span() -> None:
    index = SpanIndex.of([tokens(5000, 0), tokens(3000, 1)])
    assert first_overlap(index, [tokens(4000, 2)]) is None


@pytest.mark.parametrize("place", [0, 777, 3950])
def test_a_planted_span_of_50_tokens_is_found_where_it_stands(place: int) -> None:
    training, held_out = tokens(5000, 3), tokens(4000, 4)
    held_out[place : place + 50] = training[1234 : 1234 + 50]
    assert first_overlap(SpanIndex.of([training]), [tokens(100, 5), held_out]) == (1, place)


def test_49_shared_tokens_are_not_an_overlap() -> None:
    training, held_out = tokens(5000, 6), tokens(4000, 7)
    held_out[100:149] = training[200:249]
    assert first_overlap(SpanIndex.of([training]), [held_out]) is None


def test_hashes_are_equal_exactly_when_the_windows_are() -> None:
    ids = np.tile(tokens(40, 8), 4)
    hashes = window_hashes(ids, 5)
    assert len(set(hashes.tolist())) == len(plain_windows(ids, 5))


def test_clean_stretches_hold_no_shared_window_and_repeat_no_token() -> None:
    training, held_out = tokens(5000, 9), tokens(2000, 10)
    held_out[300:400] = training[1000:1100]
    held_out[900:951] = training[50:101]
    index = SpanIndex.of([training])
    stretches = index.clean_stretches(held_out, 64)
    assert len(stretches) == 3
    assert first_overlap(index, stretches) is None
    assert sum(map(len, stretches)) <= len(held_out)
    joined = np.concatenate(stretches)
    assert len(joined) > 1800


def test_text_shorter_than_a_span_has_no_windows() -> None:
    assert len(window_hashes(tokens(49, 11))) == 0
    assert first_overlap(SpanIndex.of([]), [tokens(60, 12)]) is None


def test_the_split_depends_on_the_name_alone_and_keeps_its_share() -> None:
    chosen = [is_held_out("package", f"module_{n}.py", 100) for n in range(5000)]
    assert chosen == [is_held_out("package", f"module_{n}.py", 100) for n in range(5000)]
    assert 400 < sum(chosen) < 600
