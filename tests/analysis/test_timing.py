"""Three measures that never mix, and figures withheld where n cannot carry them."""

from __future__ import annotations

import dataclasses
import random

import pytest

from qualify.analysis.stats import summarise, t_interval
from qualify.analysis.timing import CellStats, cell_stats
from qualify.checks.select import places
from qualify.records.run import Run
from qualify.records.schema import Failure, Record, Timing, Usage
from tests.factory import Maker, Work, drafting, editing, target, where


def first_cell(run: Run) -> CellStats:
    return cell_stats(places(run)[0])


def timed(
    record: Record, *, start: float, end: float, tokens: int, ttft: float = 0.1, tpot: float = 20.0
) -> Record:
    timing = Timing("first-event", ttft, ttft, end - start, end - start, 1, tpot, tpot, 1, ttft, ())
    return dataclasses.replace(
        record, t_start_s=start, timing=timing, usage=Usage(record.tokens, tokens, 0)
    )


def rows(spans: list[tuple[float, float, int]], concurrency: int, **more: float) -> Run:
    maker = Maker(works=(Work(count=len(spans), concurrency=(concurrency,)),), self_parity=False)
    run = maker.build()
    records = tuple(
        timed(r, start=s, end=e, tokens=n, **more)
        for r, (s, e, n) in zip(run.records, spans, strict=True)
    )
    return dataclasses.replace(run, records=records)


def test_throughput_is_over_the_whole_window_beside_the_concurrency_really_reached() -> None:
    stats = first_cell(rows([(0, 10, 1000), (0, 10, 1000), (0, 30, 1000)], 3))
    assert stats.throughput_tok_s == pytest.approx(100.0)
    assert stats.average_concurrency == pytest.approx(50 / 30)


def test_f095_one_users_rate_is_never_multiplied_into_throughput() -> None:
    stats = first_cell(rows([(0, 2.5, 51)] * 4, 4, ttft=1.0, tpot=20.0))
    assert stats.per_user_tok_s == pytest.approx(50.0)
    assert stats.throughput_tok_s == pytest.approx(81.6)
    assert all(
        value != pytest.approx(200.0)
        for value in dataclasses.asdict(stats).values()
        if isinstance(value, float)
    )


def test_f097_the_median_of_two_is_their_middle_and_no_percentile_is_shown() -> None:
    found = summarise([100.0, 200.0])
    assert found.median == 150.0
    assert (found.p90, found.p95, found.p99) == (None, None, None)


@pytest.mark.parametrize(("n", "known"), [(9, 0), (10, 1), (19, 1), (20, 2), (99, 2), (100, 3)])
def test_a_percentile_needs_one_over_one_minus_q_values(n: int, known: int) -> None:
    found = summarise([float(i) for i in range(n)])
    assert sum(p is not None for p in (found.p90, found.p95, found.p99)) == known


def test_percentiles_interpolate_linearly() -> None:
    found = summarise([float(i) for i in range(11)])
    assert found.p90 == pytest.approx(9.0)
    assert summarise([float(i) for i in range(10)]).p90 == pytest.approx(8.1)


def test_the_t_interval_matches_a_published_example() -> None:
    # Ten values, mean 5.5, s = 3.02765, t(9) = 2.262157: 5.5 +- 2.165852.
    low, high = t_interval([float(i) for i in range(1, 11)]) or (0.0, 0.0)
    assert low == pytest.approx(5.5 - 2.165852, abs=1e-5)
    assert high == pytest.approx(5.5 + 2.165852, abs=1e-5)
    assert t_interval([1.0]) is None


def test_a_request_without_tokens_is_failed_and_never_divides_by_zero() -> None:
    run = rows([(0, 0, 0), (0, 1, 50)], 2)
    stats = first_cell(run)
    assert stats.causes == {"no-tokens": 1}
    assert stats.counted == 1
    assert stats.throughput_tok_s == pytest.approx(50.0)


def test_one_output_token_has_ttft_but_no_tpot_and_n_says_so() -> None:
    stats = first_cell(Maker(output_tokens=1).build())
    assert stats.ttft_s.n == 4
    assert stats.tpot_ms.n == 0
    assert stats.tpot_ms.median is None
    assert stats.tpot_left_out == {"no decode interval": 4}
    assert stats.cycle is None


def test_f094_an_impossible_rate_is_left_out_by_a_stated_rule() -> None:
    edit = editing(where(index=1), timing__tpot_ms=0.001, usage__completion_tokens=2)
    stats = first_cell(Maker(edit=edit).build())
    assert stats.tpot_ms.n == 3
    assert stats.tpot_ms.max == pytest.approx(10.0)
    assert sum(stats.tpot_left_out.values()) == 1


def test_a_cell_where_every_request_failed_has_counts_and_no_figures() -> None:
    edit = editing(where(), ok=False, failure=Failure("refused", "no"))
    stats = first_cell(Maker(edit=edit, works=(Work(count=20),)).build())
    assert (stats.requests, stats.counted) == (20, 0)
    assert stats.causes == {"refused": 20}
    assert stats.ttft_s.median is None
    assert stats.throughput_tok_s is None


def test_a_failed_request_is_no_part_of_the_steady_ttft() -> None:
    maker = Maker(works=(Work(count=8, concurrency=(2,)),), self_parity=False)
    run = maker.build()
    records = [
        timed(r, start=2.0 * i, end=2.0 * i + 1, tokens=32) for i, r in enumerate(run.records)
    ]
    records[7] = dataclasses.replace(
        timed(records[7], start=14.0, end=15.0, tokens=32, ttft=9.0),
        ok=False,
        failure=Failure("stream-error", "died"),
    )
    stats = first_cell(dataclasses.replace(run, records=tuple(records)))
    assert stats.ttft_steady_s is not None
    assert (stats.ttft_steady_s.n, stats.ttft_steady_s.max) == (5, pytest.approx(0.1))


def test_a_cycle_is_total_time_over_total_steps_and_no_mean_of_means() -> None:
    """One request of 10 steps of 10 ms, one of 30 steps of 20 ms: 700 ms in 40 steps."""
    run = Maker(works=(Work(count=2),), self_parity=False).build()
    short, long = run.records
    records = (
        timed(short, start=0.0, end=0.1 + 0.1, tokens=11),
        timed(long, start=1.0, end=1.0 + 0.1 + 0.6, tokens=31),
    )
    stats = first_cell(dataclasses.replace(run, records=records))
    assert stats.cycle is not None
    assert stats.cycle.cycle_ms == pytest.approx(17.5)


def test_the_first_wave_of_a_closed_loop_is_shown_apart() -> None:
    maker = Maker(works=(Work(count=48, concurrency=(8,)),), self_parity=False)
    run = maker.build()
    records = []
    # The last prompts are sent first: time decides what the first wave is, not the index.
    for i, record in enumerate(reversed(run.records)):
        start = 0.0 if i < 8 else 3.0 + 0.2 * (i - 8)
        ttft = 0.2 * (i + 1) if i < 8 else 0.21
        records.append(timed(record, start=start, end=start + 3, tokens=32, ttft=ttft))
    random.Random(0).shuffle(records)
    stats = first_cell(dataclasses.replace(run, records=tuple(records)))
    assert stats.ttft_s.n == 48
    assert stats.ttft_steady_s is not None
    assert stats.ttft_steady_s.n == 40
    assert stats.ttft_steady_s.max == pytest.approx(0.21)
    assert stats.ttft_s.max == pytest.approx(1.6)


def test_cycle_time_and_tokens_per_step_are_those_of_the_play() -> None:
    run = Maker(sides={"mtp": drafting(cycle_ms=12.0, right=2)}, output_tokens=31).build()
    stats = first_cell(run)
    assert stats.cycle is not None
    assert stats.cycle.cycle_ms == pytest.approx(12.0)
    assert stats.cycle.tokens_per_step == pytest.approx(3.0)
    assert stats.tpot_ms.median == pytest.approx(4.0)


def test_a_first_event_with_a_whole_step_in_it_leaves_that_step_out() -> None:
    def merged(record: Record) -> Record:
        (_, first), (t1, n1), *rest = record.timing.events
        timing = dataclasses.replace(
            record.timing,
            ttft_s=t1,
            t_first_s=t1,
            n_first=(first or 0) + (n1 or 0),
            events=((t1, (first or 0) + (n1 or 0)), *rest),
        )
        return dataclasses.replace(record, timing=timing)

    maker = Maker(sides={"mtp": drafting(cycle_ms=12.0, right=2)}, output_tokens=31, edit=merged)
    stats = first_cell(maker.build())
    assert stats.cycle is not None
    assert stats.cycle.cycle_ms == pytest.approx(12.0)
    assert stats.cycle.tokens_per_step == pytest.approx(3.0)


def test_steps_come_from_the_identity_where_verify_steps_are_not_reported() -> None:
    edit = editing(where(), speculation__V=None, speculation__T=None, speculation__histogram=None)
    run = Maker(sides={"mtp": drafting(cycle_ms=12.0)}, output_tokens=31, edit=edit).build()
    stats = first_cell(run)
    assert stats.cycle is not None
    assert stats.cycle.how == ("identity",)
    assert stats.cycle.cycle_ms == pytest.approx(12.0)
    assert stats.speculation is not None
    assert stats.speculation.accept_length is None


def test_gaps_that_overlap_another_prefill_are_counted_apart() -> None:
    run = Maker(works=(Work(count=2, concurrency=(2,)),), self_parity=False).build()
    first, second = run.records
    # The second request is sent while the first decodes: its prefill covers part of that.
    moved = dataclasses.replace(second, t_start_s=0.3)
    stats = first_cell(dataclasses.replace(run, records=(first, moved)))
    assert stats.overlap is not None
    # Prefill takes 0.256 s: the first decodes from 0.256 to 0.566, the second prefills from
    # 0.300 to 0.556; of the first's 31 gaps of 10 ms, 26 touch that span.
    assert stats.overlap.overlapped == 26
    assert stats.overlap.gaps == 62
    assert stats.overlap.clear_ms_per_token == pytest.approx(10.0)


def test_target_only_gives_one_token_a_step() -> None:
    stats = first_cell(Maker(sides={"target-only": target(10.0)}).build())
    assert stats.cycle is not None
    assert (stats.cycle.tokens_per_step, stats.cycle.how) == (1.0, ("plain",))
    assert stats.speculation is None
