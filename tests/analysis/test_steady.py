"""Ramp, steady part and drain of a closed loop; goodput against the campaign's limits."""

from __future__ import annotations

import dataclasses

import pytest

from qualify.analysis.sides import SideCell, side_cells
from qualify.analysis.steady import steady_of
from qualify.records.run import Run
from qualify.records.schema import Record
from tests.factory import Maker, Work, editing, target, where


def played(count: int, concurrency: int, **more: object) -> Run:
    """Prefill 0.256 s and 31 gaps of 10 ms: each request takes 0.566 s, then 1 ms."""
    work = Work(count=count, concurrency=(concurrency,))
    return Maker(sides={"target-only": target(10.0)}, works=(work,), **more).build()  # type: ignore[arg-type]


def side_of(run: Run) -> SideCell:
    return side_cells(run)[0]


def test_the_steady_part_lies_between_the_first_wave_and_the_last_one() -> None:
    run = played(8, 2, self_parity=False)
    found = side_of(run).steady
    assert found is not None
    # Four rows of two requests, 0.567 s each. Ramp: until both of the first have their first
    # token, at 0.256. Drain: from where one of two is left; both end together at 2.268.
    assert found.ramp_s == pytest.approx(0.256)
    assert found.drain_s == pytest.approx(0.0)
    assert found.window_s == pytest.approx(4 * 0.567 - 0.256)
    # All 8 x 32 tokens but the two first ones, which end the ramp.
    assert found.tokens == 254
    assert found.tok_s == pytest.approx(254 / found.window_s)


def test_a_straggler_is_drain_and_does_not_slow_the_steady_rate() -> None:
    def late(record: Record) -> Record:
        if record.index != 7:
            return record
        timing = dataclasses.replace(record.timing, t_end_s=10.0)
        return dataclasses.replace(record, timing=timing)

    usual, slow = side_of(played(8, 2)), side_of(played(8, 2, edit=late))
    assert usual.steady is not None
    assert slow.steady is not None
    assert slow.steady.tok_s == pytest.approx(usual.steady.tok_s)
    assert slow.steady.drain_s == pytest.approx(10.0 - 0.567)
    assert slow.throughput_tok_s is not None
    assert usual.throughput_tok_s is not None
    assert slow.throughput_tok_s < 0.3 * usual.throughput_tok_s


def test_one_user_and_a_single_wave_have_no_steady_part() -> None:
    assert side_of(played(8, 1)).steady is None
    assert side_of(played(4, 4)).steady is None


def test_events_that_do_not_tell_their_tokens_give_no_steady_rate() -> None:
    silent = editing(
        where(index=3),
        timing__events=lambda r: tuple((t, None) for t, _ in r.timing.events),
    )
    found = side_of(played(8, 2, edit=silent)).steady
    assert found is not None
    assert (found.tokens, found.tok_s) == (None, None)
    assert found.window_s > 0


def test_a_request_without_an_end_leaves_the_window_unknown() -> None:
    run = played(8, 2, edit=editing(where(index=3), timing__t_end_s=None, timing__t_last_s=None))
    assert steady_of([r for r in run.records if r.launch == "r1.target-only#1"], 2) is None


def test_goodput_counts_the_requests_that_keep_every_limit() -> None:
    slow = editing(where(index=1), timing__tpot_ms=11.0)
    failed = editing(where(index=2), ok=False)
    run = played(8, 2, edit=lambda r: failed(slow(r)), self_parity=False)
    limits = {"goodput_ttft_s": 0.3, "goodput_tpot_ms": 10.5, "tpot_regression_pct": 5.0}
    plan = dataclasses.replace(run.plan, campaign={**run.plan.campaign, "gates": limits})
    found = side_of(dataclasses.replace(run, plan=plan)).goodput
    assert found is not None
    assert found.limits == {"goodput_ttft_s": 0.3, "goodput_tpot_ms": 10.5}
    assert (found.requests, found.good, found.share) == (8, 6, 0.75)
    assert found.requests_per_s == pytest.approx(6 / (4 * 0.567))
    assert found.tok_s == pytest.approx(6 * 32 / (4 * 0.567))
    assert side_of(run).goodput is None
