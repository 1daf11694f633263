"""TTFT and TPOT by the rule, and what stays undefined."""

from __future__ import annotations

import math
from typing import Any

import pytest

from qualify.client.stream import fold_openai
from qualify.client.timing import CONVENTION, timing_of
from qualify.records.schema import Timing
from tests.client.streams import events, text, usage


def timed(
    n: int, *parts: tuple[float, int | None], reason: str = "length"
) -> tuple[Timing, tuple[str, ...]]:
    """A stream of (t_ms, tokens by running count or None) with n tokens counted at its end."""
    said: list[tuple[float, Any]] = []
    total = 0
    for t_ms, size in parts:
        total += size or 0
        more: dict[str, Any] = (
            {} if size is None else {"usage": {"prompt_tokens": 1, "completion_tokens": total}}
        )
        said.append((t_ms, text("word ", None, **more)))
    end = (said[-1][0] + 1, text("", reason))
    return timing_of(fold_openai(events(*said, end, (end[0] + 500, usage(1, n)))))


def test_tokens_of_the_first_event_are_left_out_of_the_rate() -> None:
    timing, notes = timed(12, (100, 4), (140, 4), (180, 4))
    assert timing.convention == CONVENTION == "first-event"
    assert timing.n_first == 4
    assert timing.tpot_ms == pytest.approx(80 / 8)
    assert timing.tpot_common_ms == pytest.approx(80 / 11)
    assert notes == ()


def test_one_token_an_event_by_count_proves_the_first_event() -> None:
    timing, notes = timed(3, (100, None), (110, None), (130, None))
    assert (timing.n_first, notes) == (1, ())
    assert timing.tpot_ms == timing.tpot_common_ms == pytest.approx(15.0)


def test_an_unknown_first_event_is_never_guessed() -> None:
    timing, notes = timed(9, (100, None), (140, None), (180, None))
    assert (timing.n_first, timing.tpot_ms) == (None, None)
    assert timing.tpot_common_ms == pytest.approx(80 / 8)
    assert "9 tokens in 3 events" in notes[0]


def test_tokens_at_one_moment_have_no_rate() -> None:
    timing, notes = timed(4, (100, 2), (100, 2))
    assert timing.ttft_s == pytest.approx(0.1)
    assert (timing.tpot_ms, timing.tpot_common_ms, timing.max_gap_ms) == (None, None, 0.0)
    assert "one moment" in notes[0]


def test_one_event_with_all_tokens_has_no_rate() -> None:
    timing, _ = timed(7, (100, 7))
    assert (timing.n_first, timing.tpot_ms, timing.max_gap_ms) == (7, None, None)


def test_no_figure_is_ever_a_number_that_is_not_one() -> None:
    for n, parts in ((1, [(5, 1)]), (2, [(5, 2)]), (2, [(5, None), (5, None)])):
        timing, _ = timed(n, *parts)
        for name in ("ttft_s", "tpot_ms", "tpot_common_ms", "max_gap_ms", "t_last_s"):
            value = getattr(timing, name)
            assert value is None or (math.isfinite(value) and value >= 0)


def test_a_failed_reply_is_timed_as_far_as_it_went() -> None:
    timing, _ = timing_of(fold_openai(events((100, text("a")), (130, text("b")))))
    assert timing.ttft_s == pytest.approx(0.1)
    assert timing.tpot_ms is None
    assert timing.max_gap_ms == pytest.approx(30)
