"""Where along the context one side stops leading and the other starts; never extrapolated."""

from __future__ import annotations

import itertools
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
class Crossover:
    """A pair's decode ratio over the prompt lengths of one workload at one concurrency.

    bracket: (last shape where one leads, first shape where the other does); None where the
    lead does not change in the measured range. Shapes in between may be tied or unsettled.
    """

    side: str
    reference: str
    workload: str
    concurrency: int
    points: tuple[Point, ...]
    bracket: tuple[int, int] | None
    leads_before: str | None
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
    bracket = leads = None
    if changes:
        first, then = changes[0]
        bracket = first.tokens, then.tokens
        leads = side if first.finding.outcome == "ahead" else reference
        sentence = f"The lead changes between {first.tokens:,} and {then.tokens:,} tokens."
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
    return Crossover(side, reference, workload, concurrency, points, bracket, leads, sentence)
