"""Shape cliff: a mode whose cycle time grows with the context faster than the target's own.

At a short context such a mode looks fine. What it pays for each step (verification of eight
rows, a drafter's own attention) has to grow as the target's step does, or its gain is lost
somewhere on the way to the longest prompt; which shapes that lies between is what is named.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from qualify.checks.implausible import flaw
from qualify.checks.select import LOOKUP, NONE, Place, measuring, places
from qualify.checks.settings import Settings
from qualify.checks.steps import pooled_cycle, steps_of
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record

GROWTH_PCT = 50.0  # a drafter of a few layers attends to the context too; this much is its own
NOISE = 0.1  # least spread of a cycle (in logs): few requests never look more exact than this
SURE = 2.0  # standard errors


@dataclass(frozen=True)
class Point:
    """One shape of one side: pooled over its requests, rounds and workloads of the curve."""

    tokens: int
    requests: int
    cycle_ms: float
    tpot_ms: float | None
    spread: float  # standard deviation of log cycle over requests

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "requests": self.requests,
            "cycle_ms": self.cycle_ms,
            "median_tpot_ms": self.tpot_ms,
        }


@dataclass(frozen=True)
class Break:
    """excess: how many times faster the side's cycle grew than the target's from the shape
    `low` to `high`, the places between which most of it lies; surely: its lower bound."""

    low: int
    high: int
    excess: float
    surely: float


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and curve; a curve is a workload with two shapes or more, or
    all workloads together where they reach further than each alone."""
    wanted = settings.number("cliff", "growth_pct")
    limit = GROWTH_PCT if wanted is None else wanted
    sides: dict[str, list[Place]] = defaultdict(list)
    for place in measuring(places(run)):
        if place.counted and place.cell.cache != "session":
            sides[place.side].append(place)
    reference = _reference(run, sides)
    if reference is None:
        return [_not_run(settings, "No side decodes plainly, so there is no growth to compare.")]
    verdicts = []
    for side, mine in sides.items():
        if side == reference:
            continue
        for name, workloads in _curves(mine, sides[reference]):
            ours, target = _points(mine, workloads), _points(sides[reference], workloads)
            shared = [n for n in sorted(ours) if n in target]
            if len(shared) >= 2:
                pairs = [(ours[n], target[n]) for n in shared]
                verdicts.append(_judge(side, reference, name, pairs, limit))
    if not verdicts:
        text = "No side was measured beside the target at two prompt lengths of one workload."
        verdicts.append(_not_run(settings, text))
    return verdicts


def _not_run(settings: Settings, text: str) -> Verdict:
    return Verdict("cliff", "all sides", "not-run", text, {}, demanded=settings.named("cliff"))


def _reference(run: Run, sides: dict[str, list[Place]]) -> str | None:
    """The baseline where it decodes plainly, else the first side that does."""
    plain = [side for side, mine in sides.items() if mine[0].drafter == NONE]
    if run.plan.baseline in plain:
        return run.plan.baseline
    return plain[0] if plain else None


def _curves(mine: list[Place], target: list[Place]) -> Iterable[tuple[str, frozenset[str]]]:
    """Names of curves and their workloads, at least two shapes each on both sides.

    A lookup drafter's step is as wide as what it found, which the text decides: its curve
    never runs over several workloads.
    """
    both = {(p.cell.workload, p.cell.prompts.tokens) for p in mine}
    both &= {(p.cell.workload, p.cell.prompts.tokens) for p in target}
    shapes: dict[str, set[int]] = defaultdict(set)
    for workload, tokens in both:
        shapes[workload].add(tokens)
    for workload in dict.fromkeys(p.cell.workload for p in mine):
        if len(shapes[workload]) >= 2:
            yield workload, frozenset([workload])
    union = set().union(*shapes.values()) if shapes else set()
    longest = max((len(s) for s in shapes.values()), default=0)
    if mine[0].drafter != LOOKUP and len(union) > max(longest, 1):
        yield "all workloads", frozenset(shapes)


def _points(mine: list[Place], workloads: frozenset[str]) -> dict[int, Point]:
    """Shape -> its point, over the cells of lowest concurrency."""
    chosen = [p for p in mine if p.cell.workload in workloads]
    lowest = min((p.cell.concurrency for p in chosen), default=1)
    found: dict[int, list[Record]] = defaultdict(list)
    for place in chosen:
        if place.cell.concurrency == lowest:
            found[place.cell.prompts.tokens] += [r for r in place.counted if flaw(r) is None]
    speculative = bool(mine) and mine[0].speculative
    points = {}
    for tokens, records in found.items():
        cycle = pooled_cycle(records, speculative=speculative)
        if cycle is None or cycle.cycle_ms <= 0:
            continue
        known = [s for r in records if (s := steps_of(r, speculative=speculative)) is not None]
        logs = [math.log(s.cycle_s) for s in known]
        tpot = [r.timing.tpot_ms for r in records if r.timing.tpot_ms is not None]
        points[tokens] = Point(
            tokens,
            len(known),
            cycle.cycle_ms,
            statistics.median(tpot) if tpot else None,
            max(NOISE, statistics.stdev(logs)) if len(logs) > 1 else NOISE,
        )
    return points


def worst_break(pairs: list[tuple[Point, Point]]) -> Break:
    """The stretch over which (side, target) part most, told by where most of it happens."""
    ratios = [ours.cycle_ms / target.cycle_ms for ours, target in pairs]
    found: tuple[float, int, int] | None = None
    for end in range(1, len(ratios)):
        begin = min(range(end), key=lambda i: ratios[i])
        excess = ratios[end] / ratios[begin]
        if found is None or excess > found[0]:
            found = excess, begin, end
    assert found is not None
    excess, begin, end = found
    steps = [(ratios[i + 1] / ratios[i], i) for i in range(begin, end)]
    where = max(steps)[1]
    four = [point for i in (begin, end) for point in pairs[i]]
    error = math.sqrt(sum(p.spread**2 / p.requests for p in four))
    surely = math.exp(math.log(excess) - SURE * error)
    return Break(pairs[where][0].tokens, pairs[where + 1][0].tokens, excess, surely)


def _judge(
    side: str, reference: str, name: str, pairs: list[tuple[Point, Point]], limit: float
) -> Verdict:
    found = worst_break(pairs)
    over = (found.excess - 1) * 100
    evidence: dict[str, Any] = {
        "sides": [side, reference],
        "curve": name,
        "points": [{"side": ours.to_json(), "target": target.to_json()} for ours, target in pairs],
        "growth_over_target_pct": over,
        "surely_over_target_pct": (found.surely - 1) * 100,
        "allowed_pct": limit,
        "between": [found.low, found.high],
    }
    first, last = pairs[0], pairs[-1]
    curve = (
        f"from {first[0].tokens:,} to {last[0].tokens:,} tokens its cycle goes from "
        f"{first[0].cycle_ms:.3g} to {last[0].cycle_ms:.3g} ms, {reference}'s own from "
        f"{first[1].cycle_ms:.3g} to {last[1].cycle_ms:.3g} ms"
    )
    subject = f"{side}, {name}"
    if over <= limit:
        text = f"{curve[0].upper()}{curve[1:]}; it grows at most {max(over, 0.0):.0f}% faster."
        return Verdict("cliff", subject, "pass", text, evidence)
    broken = (
        f"its cycle grows {over:.0f}% faster than {reference}'s own, and {limit:g}% is allowed; "
        f"it breaks between {found.low:,} and {found.high:,} tokens ({curve})"
    )
    if (found.surely - 1) * 100 > limit:
        return Verdict("cliff", subject, "fail", f"{side}: {broken}.", evidence)
    least = min(p.requests for pair in pairs for p in pair)
    return Verdict(
        "cliff",
        subject,
        "inconclusive",
        f"{side}: {broken}, but {least} requests a shape are too few to be sure of it.",
        evidence,
    )
