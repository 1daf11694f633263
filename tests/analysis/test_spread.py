"""Medians, tails, acceptance, launches and drift, against plays whose truth is known."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics

import pytest

from qualify.analysis.acceptance import acceptance_of, repetition
from qualify.analysis.resampling import quantile_intervals
from qualify.analysis.sides import SideCell, side_cells
from qualify.analysis.stability import drifts_of, launches_of, machine_of, trend
from qualify.records.run import Run
from qualify.records.schema import Record, Speculation
from tests.factory import Maker, Mode, Work, drafting, editing, target, where


def first_side(run: Run) -> SideCell:
    return side_cells(run)[0]


def test_a_bootstrap_interval_of_a_median_agrees_with_plain_resampling() -> None:
    rng = random.Random(4)
    values = {i: [rng.lognormvariate(0, 0.4) for _ in range(2)] for i in range(30)}
    (found,) = quantile_intervals(values, [0.5])
    assert found is not None
    drawn = sorted(
        statistics.median(v for _ in values for v in values[rng.randrange(30)]) for _ in range(4000)
    )
    assert found.low == pytest.approx(drawn[100], rel=0.03)
    assert found.high == pytest.approx(drawn[3900], rel=0.03)


def test_repeats_of_few_prompts_make_no_interval_narrow() -> None:
    rng = random.Random(4)
    level = [rng.gauss(10, 1) for _ in range(12)]
    once, often = ({i: [v] * n for i, v in enumerate(level)} for n in (1, 20))
    assert quantile_intervals(once, [0.5]) == quantile_intervals(often, [0.5])
    assert quantile_intervals({i: [v] * 50 for i, v in enumerate(level[:4])}, [0.5]) == [None]


def test_the_tail_names_its_quantile_and_the_worst_request() -> None:
    slow = editing(where(index=7), timing__tpot_ms=35.0)
    side = first_side(Maker(works=(Work(count=20),), edit=slow).build())
    tail = side.tpot_tail_ms
    assert (tail.n, tail.quantile) == (20, 0.95)
    assert tail.value == pytest.approx(10 + 0.05 * 25)  # between the last two of twenty
    assert tail.over_median == pytest.approx(1.125)
    assert tail.worst is not None
    assert (tail.worst.value, tail.worst.prompt_id) == (35.0, "prose@256/measured/7")
    few = first_side(Maker(works=(Work(count=9),)).build()).tpot_tail_ms
    assert (few.quantile, few.value, few.interval) == (None, None, None)


def spoken(record: Record, correct: int, verified: int) -> Record:
    spec = Speculation("made", verified, 3 * verified, correct, 1, 0, 0)
    return dataclasses.replace(record, speculation=spec)


def test_an_accept_length_interval_is_over_prompts_as_worked_out_by_hand() -> None:
    records = Maker(sides={"mtp": drafting()}, self_parity=False).build().records
    found = acceptance_of(
        [
            spoken(r, c, v)
            for r, c, v in zip(records, (10, 20, 30, 40), (20, 20, 20, 20), strict=True)
        ]
    )
    assert found is not None
    assert found.prompts == 4
    # Equal V: the interval of the mean of 0.5, 1, 1.5 and 2, with t(3) = 3.182446.
    half = 3.182446 * math.sqrt(5 / 12) / 2
    assert found.accept_length is not None
    assert found.accept_length.low == pytest.approx(1 + 1.25 - half, rel=1e-6)
    assert found.accept_length.high == pytest.approx(1 + 1.25 + half, rel=1e-6)


def test_accept_length_intervals_hold_the_truth_about_95_times_in_100() -> None:
    rng, held = random.Random(8), 0
    records = Maker(sides={"mtp": drafting()}, works=(Work(count=12),)).build().records[:12]
    for _ in range(400):
        said = []
        for record in records:
            own = min(max(rng.gauss(0.5, 0.15), 0.0), 1.0)  # prompts are accepted differently
            verified = rng.randrange(20, 40)
            correct = sum(rng.random() < own for _ in range(verified))
            said.append(spoken(record, correct, verified))
        found = acceptance_of(said)
        assert found is not None
        assert found.accept_length is not None
        held += found.accept_length.low <= 1.5 <= found.accept_length.high
    assert 0.92 <= held / 400 <= 0.98


def test_two_prompts_give_a_rate_and_no_interval() -> None:
    run = Maker(sides={"mtp": drafting()}, works=(Work(count=2),), self_parity=False).build()
    side = first_side(run)
    assert side.speculation is not None
    assert side.speculation.accept_length == pytest.approx(3.0)
    assert side.acceptance is not None
    assert side.acceptance.accept_length is None


def test_repetition_is_the_share_of_four_token_sequences_that_came_before() -> None:
    assert repetition([[1, 2, 3, 4, 5, 6, 7, 8]]) == 0.0
    assert repetition([[1, 2, 3, 4, 1, 2, 3, 4]]) == pytest.approx(1 / 5)
    assert repetition([[7] * 13]) == pytest.approx(9 / 10)
    assert repetition([[1, 2]]) is None


def test_launches_that_differ_are_told_apart_from_prompts_that_do() -> None:
    factors = {0: 1.0, 1: 1.05, 2: 0.95}
    mode = target(10.0, launch_factor=lambda n: factors[n])
    (found,) = launches_of(Maker(sides={"target-only": mode}, rounds=3, self_parity=False).build())
    assert found.tpot_ms == pytest.approx(
        {"r1.target-only": 10.0, "r2.target-only": 10.5, "r3.target-only": 9.5}
    )
    assert found.spread == pytest.approx(statistics.stdev([0, math.log(1.05), math.log(0.95)]))
    assert found.range == pytest.approx(10.5 / 9.5)
    (single,) = launches_of(Maker(self_parity=False).build())
    assert (single.spread, single.range) == (None, None)


def test_a_machine_that_slows_from_prompt_to_prompt_is_seen_and_noise_is_not() -> None:
    rng = random.Random(2)

    def drifted(slower: float) -> str:
        run = Maker(
            works=(Work(count=12),),
            rounds=3,
            self_parity=False,
            clock_noise=lambda _, __, prompt: 1 + slower * prompt / 11 + rng.gauss(0, 0.01),
        ).build()
        (found,) = drifts_of(run)
        if slower:
            assert found.change == pytest.approx(slower, abs=0.03)
        return found.word

    assert drifted(0.15) == "slower"
    assert drifted(-0.15) == "faster"
    assert [drifted(0.0) for _ in range(20)].count("none") >= 19
    assert drifts_of(Maker(works=(Work(count=4),)).build()) == []


def test_a_trend_agrees_with_a_published_regression() -> None:
    # Anscombe's first set: slope 0.5001, standard error 0.1179, p = 0.00217.
    x = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    slope, p = trend(x, y)
    assert slope == pytest.approx(0.50009, abs=1e-5)
    assert p == pytest.approx(0.00217, abs=1e-5)


def test_clocks_and_heat_before_each_launch_are_shown_where_they_were_read() -> None:
    run = Maker(rounds=2, self_parity=False).build()
    origins = [
        {"host": {"cpu_mhz": 3000.0, "temperatures_c": {"a": 50.0, "b": 61.0}, "load_1m": None}},
        {"devices": {"nvidia": [{"sm_mhz": 1980, "name": "x"}]}, "host": {"cpu_mhz": 2400.0}},
    ]
    launches = tuple(
        dataclasses.replace(entry, origin=origin)
        for entry, origin in zip(run.launches, origins, strict=True)
    )
    found = {m.what: m for m in machine_of(dataclasses.replace(run, launches=launches))}
    assert set(found) == {"cpu_mhz", "hottest_c", "nvidia 0 sm_mhz"}
    assert (found["cpu_mhz"].first, found["cpu_mhz"].last) == (3000.0, 2400.0)
    assert found["hottest_c"].most == 61.0


def test_phases_of_a_step_are_told_with_what_they_leave_unexplained() -> None:
    def phased(record: Record) -> Record:
        spec = record.speculation
        assert spec is not None
        assert spec.V is not None
        told = {"prefill": 0.3, "draft": 0.002 * spec.V, "verify": 0.009 * spec.V, "priming": 0.05}
        return dataclasses.replace(record, speculation=dataclasses.replace(spec, phases_s=told))

    maker = Maker(sides={"mtp": drafting(cycle_ms=12.0)}, output_tokens=31, edit=phased)
    found = first_side(maker.build()).phases
    assert found is not None
    assert found.cycle_ms == pytest.approx(12.0)
    assert found.ms == pytest.approx({"draft": 2.0, "verify": 9.0, "rest": 1.0})
    assert found.priming_ms == pytest.approx(50.0)
    assert first_side(Maker().build()).phases is None


def test_prefills_share_says_why_a_decode_gain_is_not_felt() -> None:
    from qualify.analysis.pairs import all_pairs

    sides: dict[str, Mode] = {"target-only": target(10.0), "mtp": drafting(cycle_ms=15.0)}
    works = (Work(tokens=(32768,)),)
    (pair,) = all_pairs(Maker(sides=sides, works=works, output_tokens=31).build(), 0.03)
    assert pair.prefill_share == pytest.approx(32.768 / (32.768 + 0.3))
