"""Where along the context one side stops leading and the other starts; never extrapolated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis.outcomes import Finding
from qualify.analysis.pairs import PairResult


@dataclass(frozen=True)
class Point:
    tokens: int
    cell: str
    finding: Finding


@dataclass(frozen=True)
class Estimate:
    """Where the ratio would be 1, in prompt tokens, read off between measured shapes.

    On log axes: the ratio's own line for `tokens`, the ends of its 95% intervals for `low`
    and `high`. All three lie inside the bracket.
    """

    tokens: float
    low: float
    high: float


@dataclass(frozen=True)
class Crossover:
    """A pair's decode ratio over the prompt lengths of one workload at one concurrency.

    bracket: (last shape where one leads, first shape where the other does); None where the
    lead does not change in the measured range. Shapes in between may be tied or unsettled.
    changes: how often the lead changes in all; bracket and estimate tell of the first.
    """

    side: str
    reference: str
    workload: str
    concurrency: int
    points: tuple[Point, ...]
    bracket: tuple[int, int] | None
    leads_before: str | None
    estimate: Estimate | None
    changes: int
    sentence: str


def crossovers(pairs: Sequence[PairResult]) -> list[Crossover]:
    """One for each pair, workload and concurrency with at least one compared shape."""
    groups: dict[tuple[str, str, str, int], list[PairResult]] = {}
    for pair in pairs:
        key = pair.side, pair.reference, pair.workload, pair.concurrency
        groups.setdefault(key, []).append(pair)
    return [c for key, found in groups.items() if (c := _crossover(key, found)) is not None]


def _crossover(key: tuple[str, str, str, int], found: list[PairResult]) -> Crossover | None:
    points = tuple(
        Point(p.tokens, p.cell, p.decode)
        for p in sorted(found, key=lambda p: p.tokens)
        if p.decode is not None
    )
    if not points:
        return None
    side, reference, workload, concurrency = key
    decided = [p for p in points if p.finding.outcome in ("ahead", "behind")]
    changes = [
        (a, b) for a, b in itertools.pairwise(decided) if a.finding.outcome != b.finding.outcome
    ]
    shapes = [p.tokens for p in points]
    measured = f"{shapes[0]:,} to {shapes[-1]:,} tokens"
    bracket = leads = estimate = None
    if changes:
        first, then = changes[0]
        bracket = first.tokens, then.tokens
        leads = side if first.finding.outcome == "ahead" else reference
        estimate = _estimate([p for p in points if first.tokens <= p.tokens <= then.tokens])
        sentence = f"The lead changes between {first.tokens:,} and {then.tokens:,} tokens"
        if estimate is not None:
            sentence += (
                f", at about {estimate.tokens:,.0f} (95% interval {estimate.low:,.0f} to "
                f"{estimate.high:,.0f})"
            )
        sentence += "."
        if len(changes) > 1:
            sentence += f" It changes {len(changes)} times in all; each prompt set decides."
    elif len(shapes) < 2:
        sentence = f"One shape only ({shapes[0]:,} tokens): no curve."
    elif not decided:
        sentence = f"No crossover in the measured range ({measured}): neither leads anywhere."
    else:
        who = side if decided[0].finding.outcome == "ahead" else reference
        where = ", ".join(f"{p.tokens:,}" for p in decided)
        sentence = (
            f"No crossover in the measured range ({measured}): {who} leads at {where}, and "
            f"nothing leads elsewhere."
            if len(decided) < len(points)
            else f"No crossover in the measured range ({measured}): {who} leads throughout."
        )
    return Crossover(
        side,
        reference,
        workload,
        concurrency,
        points,
        bracket,
        leads,
        estimate,
        len(changes),
        sentence,
    )


def _estimate(points: Sequence[Point]) -> Estimate | None:
    """None where a point has no interval. The first point leads, the last one trails."""
    if any(p.finding.low is None or p.finding.high is None for p in points):
        return None
    down = points[0].finding.ratio > 1
    least = [math.log(p.finding.low or 1) for p in points]
    most = [math.log(p.finding.high or 1) for p in points]
    # Turned so that the lead is above 0: its pessimistic edge crosses first, the other last.
    near, far = (least, most) if down else ([-v for v in most], [-v for v in least])
    line = [math.log(p.finding.ratio) * (1 if down else -1) for p in points]
    shapes = [math.log(p.tokens) for p in points]
    centre = _crossings(shapes, line)
    low, high = _crossings(shapes, near), _crossings(shapes, far)
    if not (centre and low and high):
        return None
    middle = (centre[0] + centre[-1]) / 2  # one crossing, unless noise makes more of it
    return Estimate(math.exp(middle), math.exp(low[0]), math.exp(high[-1]))


def _crossings(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Where the line through the points changes its sign."""
    return [
        x0 + (x1 - x0) * y0 / (y0 - y1)
        for (x0, y0), (x1, y1) in itertools.pairwise(zip(x, y, strict=True))
        if (y0 > 0) != (y1 > 0)
    ]
