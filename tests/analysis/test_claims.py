"""What may be claimed of many comparisons at once, and what equal work says of the margin."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from qualify.analysis.analyse import analyse
from qualify.analysis.outcomes import Finding, holm, judge
from qualify.checks.all import run_checks
from qualify.records.run import Run
from tests.factory import Maker, Work, drafting, target


def claim(p: float, ratio: float = 1.2) -> Finding:
    return Finding(ratio, ratio / 1.02, ratio * 1.02, "rounds", 5, "", 0.03, "ahead", "", p, p)


def test_holms_correction_matches_a_worked_example() -> None:
    # 0.01 x 4; then the largest of what came before and 0.03 x 2; and so on.
    found = holm([claim(0.04), claim(0.01), None, claim(0.03), claim(0.005)])
    assert [f.p_holm if f else None for f in found] == pytest.approx([0.06, 0.03, None, 0.06, 0.02])
    assert [f.outcome if f else None for f in found] == [
        "not enough data",
        "ahead",
        None,
        "not enough data",
        "ahead",
    ]
    assert {f.family for f in found if f} == {4}


def test_one_claim_among_many_needs_more_than_alone() -> None:
    alone = judge({i: {("a", 0): math.log(v)} for i, v in enumerate((1.10, 1.12, 1.15))}, 0.03)
    assert alone is not None
    assert alone.outcome == "ahead"
    assert alone.p is not None
    among = holm([alone, *[claim(0.9, 1.0)] * 19])[0]
    assert among is not None
    assert among.outcome == "not enough data"
    assert among.p_holm == pytest.approx(20 * alone.p)
    assert (among.low, among.high) == (alone.low, alone.high)


def test_a_claim_without_an_interval_is_not_counted_among_the_others() -> None:
    one = judge({1: {("a", 0): 0.3}}, 0.03)
    assert one is not None
    assert (one.p, one.p_holm) == (None, None)
    assert holm([one, claim(0.04)])[1] == dataclasses.replace(claim(0.04), family=1)


def test_the_p_value_without_a_margin_is_that_of_a_t_test() -> None:
    # Student's sleep data, the classic paired example: t = 4.0621 on 9 df, p = 0.002833.
    extra = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    found = judge({i: {("a", 0): v} for i, v in enumerate(extra)}, 0.0)
    assert found is not None
    assert found.p == pytest.approx(0.002833, abs=5e-7)


def test_ahead_is_never_said_where_the_interval_holds_no_difference() -> None:
    rng = random.Random(3)
    for _ in range(2000):
        n = rng.randrange(2, 7)
        values = {i: {("a", 0): rng.gauss(0.05, 0.05)} for i in range(n)}
        found = judge(values, rng.choice((0.0, 0.01, 0.03, 0.1)))
        assert found is not None
        if found.outcome in ("ahead", "behind"):
            assert found.low is not None
            assert found.high is not None
            assert not found.low <= 1 <= found.high


def alike(rounds: int, noise: float, seed: int = 5) -> Run:
    rng = random.Random(seed)
    factors: dict[str, float] = {}
    return Maker(
        sides={"target-only": target(), "target-two": target(), "mtp": drafting()},
        works=(Work(tokens=(256, 1024)),),
        rounds=rounds,
        self_parity=False,
        clock_noise=lambda launch, *_: factors.setdefault(launch, rng.gauss(1, noise)),
    ).build()


def margin(run: Run) -> tuple[float, str]:
    found = analyse(run, run_checks(run)).margin
    return found.value, found.source


def test_two_sides_launched_alike_say_what_counts_as_a_tie() -> None:
    run = alike(6, 0.03)
    value, source = margin(run)
    assert "target-two and target-only, launched alike" in source
    # By hand: t(6) = 2.446912 times the spread around no difference over the root of 6.
    tpot = {(r.side, r.round, r.cell): r.timing.tpot_ms for r in run.records if r.side != "mtp"}
    logs = [
        math.log((tpot["target-only", n, cell] or 0) / (tpot["target-two", n, cell] or 0))
        for n in range(1, 7)
        for cell in ("prose@256/c1", "prose@1024/c1")
    ]
    spread = math.sqrt(sum(x * x for x in logs) / len(logs))
    assert value == pytest.approx(math.exp(2.446912 * spread / math.sqrt(6)) - 1, rel=1e-5)


def test_a_very_quiet_machine_still_calls_one_percent_a_tie() -> None:
    value, source = margin(alike(3, 0.0))
    assert value == 0.01
    assert "differed by less" in source


def test_with_few_rounds_sides_launched_alike_count_by_their_largest_difference() -> None:
    value, source = margin(alike(1, 0.06))
    assert value > 0.03
    assert "launched alike, differed by that much" in source
