"""A small, seeded part of benchmarks/honesty.py: the report's words against a known truth.

The bounds are wider than the benchmark's targets by what fewer campaigns leave to chance.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from benchmarks.honesty import STEPS, Sweep, World, covers, crossing_truths, share, singles
from qualify.analysis.analyse import analyse
from tests.factory import Maker, Work, drafting, target

FEW = 400


@pytest.mark.parametrize("rounds", [3, 5, 10])
def test_95_percent_intervals_hold_the_truth_about_that_often(rounds: int) -> None:
    world = World(rounds=rounds, ratio=1.25)
    held = share([covers(f, 1.25) for f in singles(world, FEW, "cover")])
    assert 0.925 <= held <= 0.975


@pytest.mark.parametrize("rounds", [3, 5, 10])
def test_a_true_tie_is_rarely_called_anything_else(rounds: int) -> None:
    words = [f.outcome for f in singles(World(rounds=rounds, launch=0.05), FEW, "tie")]
    assert share([w in ("tied", "not enough data") for w in words]) >= 0.95


def test_a_true_ten_percent_is_called_in_five_rounds_of_ten_prompts() -> None:
    words = [f.outcome for f in singles(World(ratio=1.10), FEW, "power")]
    assert share([w == "ahead" for w in words]) >= 0.80
    assert words.count("behind") == 0


def test_a_difference_no_larger_than_the_margin_is_called_in_one_of_twenty_at_most() -> None:
    words = [f.outcome for f in singles(World(ratio=1.03), FEW, "edge")]
    assert share([w == "ahead" for w in words]) <= 0.08


def test_twenty_ties_in_one_report_stay_uncalled() -> None:
    rng = random.Random("many")
    called = [
        any(
            f.outcome in ("ahead", "behind")
            for f in Sweep(World(), [0.0] * 20, rng).play().findings()
        )
        for _ in range(100)
    ]
    assert share(called) <= 0.05


def test_brackets_hold_the_crossing_and_are_one_step_wide_where_shapes_differ_by_a_tenth() -> None:
    rng, held, narrow = random.Random("narrow"), [], []
    for _ in range(100):
        step = rng.randrange(1, len(STEPS) - 2)
        at = math.sqrt(STEPS[step] * STEPS[step + 1])
        curve = Sweep(World(), crossing_truths(at, 2 * math.log(1.1)), rng).play().curve()
        held.append(curve.bracket is not None and curve.bracket[0] <= at <= curve.bracket[1])
        narrow.append(curve.bracket == (STEPS[step], STEPS[step + 1]))
    assert share(held) >= 0.95
    assert share(narrow) >= 0.80


@dataclass
class Noise:
    """2% a launch and 3% a request, the same whenever the same one is asked for."""

    rng: random.Random
    drawn: dict[tuple[str, int], float] = field(default_factory=dict)

    def factor(self, launch: str, round_: int, prompt: int) -> float:
        own = self.drawn.setdefault((launch, prompt), self.rng.gauss(0, 0.03))
        return math.exp(self.drawn.setdefault((launch, -1), self.rng.gauss(0, 0.02)) + own)


def test_the_whole_way_from_requests_to_the_interval_holds_the_truth() -> None:
    """Not paired ratios but played requests, judged by all of the analysis."""
    rng, held = random.Random("requests"), []
    for _ in range(120):
        noise = Noise(rng)
        run = Maker(
            sides={"target-only": target(10.0), "mtp": drafting(cycle_ms=15.0, right=1)},
            works=(Work(count=4),),
            rounds=4,
            output_tokens=9,
            self_parity=False,
            clock_noise=noise.factor,
        ).build()
        (pair,) = analyse(run, ()).pairs
        assert pair.decode is not None
        held.append(covers(pair.decode, 20 / 15))
    assert 0.88 <= share(held) <= 0.99
