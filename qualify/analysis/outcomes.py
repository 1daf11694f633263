"""From paired log ratios to one of four words: ahead, behind, tied, not enough data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qualify.analysis.stats import mean, standard_error, t_quantile, t_tail

LEAST_ROUNDS = 3  # below this, launches are too few for an interval across them
UNQUALIFIED_ROUNDS = 5  # from here on a claim needs no reservation
LEVEL = 0.05  # how often "ahead" or "behind" may be said of what is neither
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

    p: how often a true difference as large as the margin would look at least this large, in
    either direction; None without an interval. p_holm: the same after Holm's correction over
    the `family` comparisons of one report. Both decide together with the interval.
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
    p: float | None = None
    p_holm: float | None = None
    family: int = 1
    error: float | None = None
    df: float | None = None


# round -> prompt key -> log of (reference / side), above 0 where the side is faster
LogRatios = Mapping[int, Mapping[tuple[str, int], float]]


def judge(values: LogRatios, margin: float) -> Finding | None:
    """None for no values. Within a round the mean over prompts, across rounds a t interval
    (df = rounds - 1); with fewer than 3 rounds an interval over prompts instead."""
    means = round_means(values)
    centre = mean(means)
    if centre is None:
        return None
    if len(means) >= LEAST_ROUNDS:
        sample, basis = means, "rounds"
        scope = ACROSS if len(means) >= UNQUALIFIED_ROUNDS else FEW
    else:
        sample, scope = _over_rounds(values), WITHIN
        basis = "prompts" if len(sample) > 1 else "one"
    # Prompts may be missing in one round: the interval stands around the estimate all the same.
    error = standard_error(sample)
    return _finding(centre, error, len(sample) - 1, basis, len(sample), scope, margin)


def judge_apart(before: Sequence[float], after: Sequence[float], margin: float) -> Finding | None:
    """Two sets of launches that share no rounds, such as those of two runs: each value is one
    launch's level (a log). The ratio is exp(mean(before) - mean(after)); Welch's t interval
    from 3 launches a side on, else a direction. None where one side has no value."""
    a, b = mean(before), mean(after)
    if a is None or b is None:
        return None
    n = len(before) + len(after)
    least = min(len(before), len(after))
    if least < LEAST_ROUNDS:
        return _finding(a - b, None, 1, "one", n, WITHIN, margin)
    va, vb = ((standard_error(v) or 0.0) ** 2 for v in (before, after))
    error = math.sqrt(va + vb)
    parts = va**2 / (len(before) - 1) + vb**2 / (len(after) - 1)
    df = (va + vb) ** 2 / parts if parts else float(n - 2)
    scope = ACROSS if least >= UNQUALIFIED_ROUNDS else FEW
    return _finding(a - b, error, df, "launches", n, scope, margin)


def _finding(
    centre: float,
    error: float | None,
    df: float,
    basis: str,
    n: int,
    scope: str,
    margin: float,
) -> Finding:
    edge = math.log1p(margin)
    half = None if error is None else t_quantile(df) * error
    interval = None if half is None else (centre - half, centre + half)
    p = None if error is None else p_beyond(centre, error, df, edge)
    return Finding(
        ratio=math.exp(centre),
        low=None if interval is None else math.exp(interval[0]),
        high=None if interval is None else math.exp(interval[1]),
        basis=basis,
        n=n,
        scope=scope,
        margin=margin,
        outcome=_outcome(centre, interval, edge, p),
        direction=_direction(centre, edge),
        p=p,
        p_holm=p,
        error=error,
        df=None if error is None else df,
    )


def holm(findings: Sequence[Finding | None]) -> list[Finding | None]:
    """The findings of one report, judged again so that all of them together call a difference
    that is none in at most 5% of reports (Holm 1979). A tie claims no difference and needs
    no correction; what has no interval makes no claim and is not counted."""
    known = sorted((f.p, i) for i, f in enumerate(findings) if f is not None and f.p is not None)
    judged = list(findings)
    reached = 0.0
    for rank, (p, i) in enumerate(known):
        reached = max(reached, min(1.0, p * (len(known) - rank)))
        found = findings[i]
        assert found is not None
        centre, edge = math.log(found.ratio), math.log1p(found.margin)
        assert found.low is not None
        assert found.high is not None
        interval = math.log(found.low), math.log(found.high)
        judged[i] = replace(
            found,
            p_holm=reached,
            family=len(known),
            outcome=_outcome(centre, interval, edge, reached),
        )
    return judged


def round_means(values: LogRatios) -> list[float]:
    found = (mean(list(by_prompt.values())) for by_prompt in values.values())
    return [m for m in found if m is not None]


def _over_rounds(values: LogRatios) -> list[float]:
    """One value a prompt: its mean over the rounds in which it was compared."""
    keys = dict.fromkeys(k for by_prompt in values.values() for k in by_prompt)
    found = (mean([v[k] for v in values.values() if k in v]) for k in keys)
    return [m for m in found if m is not None]


def p_beyond(centre: float, error: float, df: float, edge: float) -> float:
    """P of so large an estimate, either way, where the truth lies at the margin.

    With the margin at 0 this is the usual two-sided p of a t test; it never is less, so that
    p <= 5% also means that the 95% interval excludes no difference.
    """
    far = abs(centre)
    if error == 0:
        return 0.0 if far > edge else 1.0
    return min(1.0, t_tail((far - edge) / error, df) + t_tail((far + edge) / error, df))


def _outcome(
    centre: float, interval: tuple[float, float] | None, edge: float, p: float | None
) -> str:
    """Ahead or behind: what counts as a tie would rarely look so different (p <= 5%).
    Tied: the whole 95% interval lies within the margin. Anything else is not enough data."""
    if interval is None or p is None:
        return "not enough data"
    if p <= LEVEL and abs(centre) > edge:
        return "ahead" if centre > 0 else "behind"
    if -edge <= interval[0] and interval[1] <= edge:
        return "tied"
    return "not enough data"


def _direction(centre: float, edge: float) -> str:
    if abs(centre) <= edge:
        return "level"
    return "faster" if centre > 0 else "slower"
