"""From paired log ratios to one of four words: ahead, behind, tied, not enough data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from qualify.analysis.stats import mean, t_interval

LEAST_ROUNDS = 3  # below this, launches are too few for an interval across them
UNQUALIFIED_ROUNDS = 5  # from here on a claim needs no reservation
WITHIN = "within these launches only"
FEW = "across launches, few rounds"
ACROSS = "across launches"


@dataclass(frozen=True)
class Finding:
    """A ratio with its 95% interval and what may be said of it.

    basis: "rounds" (t interval over round means), "prompts" (t interval over prompts, valid
    within these launches only) or "one" (a single comparison: a direction, no interval).
    n is how many values the interval stands on. margin is the relative difference under
    which two sides count as tied. direction is the point estimate's, whatever the outcome.
    """

    ratio: float
    low: float | None
    high: float | None
    basis: str
    n: int
    scope: str
    margin: float
    outcome: str
    direction: str


# round -> prompt key -> log of (reference / side), above 0 where the side is faster
LogRatios = Mapping[int, Mapping[tuple[str, int], float]]


def judge(values: LogRatios, margin: float) -> Finding | None:
    """None for no values. Within a round the mean over prompts, across rounds a t interval
    (df = rounds - 1); with fewer than 3 rounds an interval over prompts instead."""
    means = [
        m for by_prompt in values.values() if (m := mean(list(by_prompt.values()))) is not None
    ]
    centre = mean(means)
    if centre is None:
        return None
    rounds = len(means)
    if rounds >= LEAST_ROUNDS:
        interval, basis, n = t_interval(means), "rounds", rounds
        scope = ACROSS if rounds >= UNQUALIFIED_ROUNDS else FEW
    else:
        prompts = _over_rounds(values)
        interval, n, scope = t_interval(prompts), len(prompts), WITHIN
        basis = "prompts" if interval is not None else "one"
        if interval is not None:
            # Prompts may be missing in one round: keep the interval around the estimate.
            shift = centre - (interval[0] + interval[1]) / 2
            interval = interval[0] + shift, interval[1] + shift
    low, high = interval if interval is not None else (None, None)
    return Finding(
        ratio=math.exp(centre),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        basis=basis,
        n=n,
        scope=scope,
        margin=margin,
        outcome=_outcome(centre, interval, math.log1p(margin)),
        direction=_direction(centre, math.log1p(margin)),
    )


def round_means(values: LogRatios) -> list[float]:
    found = (mean(list(by_prompt.values())) for by_prompt in values.values())
    return [m for m in found if m is not None]


def _over_rounds(values: LogRatios) -> list[float]:
    """One value a prompt: its mean over the rounds in which it was compared."""
    keys = dict.fromkeys(k for by_prompt in values.values() for k in by_prompt)
    found = (mean([v[k] for v in values.values() if k in v]) for k in keys)
    return [m for m in found if m is not None]


def _outcome(centre: float, interval: tuple[float, float] | None, edge: float) -> str:
    """Ahead or behind: beyond the margin, and the interval excludes no difference. Tied: the
    whole interval lies within the margin. Anything else is not enough data."""
    if interval is None:
        return "not enough data"
    low, high = interval
    if centre > edge and low > 0:
        return "ahead"
    if centre < -edge and high < 0:
        return "behind"
    if -edge <= low and high <= edge:
        return "tied"
    return "not enough data"


def _direction(centre: float, edge: float) -> str:
    if abs(centre) <= edge:
        return "level"
    return "faster" if centre > 0 else "slower"
