"""Which records of two sides belong together: same round, same cell, same prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from qualify.checks.select import Place, measuring, places
from qualify.checks.settings import Settings
from qualify.plan import Plan
from qualify.records.run import Run
from qualify.records.schema import Record


@dataclass(frozen=True)
class Match:
    """One prompt on both sides of a pair, inside one round."""

    a: Record
    b: Record
    round: int


def side_names(plan: Plan) -> list[str]:
    """Every side of the plan once, the baseline first, then in order of appearance."""
    names = dict.fromkeys(launch.side.name for launch in plan.launches)
    rest = [n for n in names if n != plan.baseline]
    return ([plan.baseline] if plan.baseline in names else []) + rest


def oriented(pair: tuple[str, str], baseline: str) -> tuple[str, str]:
    """(side, reference): the baseline is always the reference."""
    return (pair[1], pair[0]) if pair[0] == baseline else pair


def planned_pairs(plan: Plan, settings: Settings | None = None) -> list[tuple[str, str]]:
    """Pairs to compare, oriented and without repeats; all of them for `parity: all-pairs`."""
    pairs = list(plan.pairs)
    wish = settings.checks.get("parity") if settings else None
    if settings and (wish == "all-pairs" or settings.option("parity", "pairs") == "all"):
        pairs += combinations(side_names(plan), 2)
    seen: dict[frozenset[str], tuple[str, str]] = {}
    for pair in pairs:
        seen.setdefault(frozenset(pair), oriented(pair, plan.baseline))
    return list(seen.values())


def cells_of(run: Run, side: str) -> dict[str, list[Place]]:
    """cell id -> the side's measuring places, one for each round."""
    found: dict[str, list[Place]] = {}
    for place in measuring(places(run)):
        if place.side == side:
            found.setdefault(place.cell.id, []).append(place)
    return found


def matches(ours: list[Place], theirs: list[Place]) -> Iterator[Match]:
    """Counted requests of the same prompt in the same round."""
    other = {(p.launch.round, r.prompt_id, r.turn): r for p in theirs for r in p.counted}
    for place in ours:
        for record in place.counted:
            found = other.get((place.launch.round, record.prompt_id, record.turn))
            if found is not None:
                yield Match(record, found, place.launch.round)


def baseline_repeats(run: Run, cell: str) -> list[Match]:
    """The baseline against itself: its first launch of a cell against every later one."""
    mine = [
        p for p in places(run) if p.side == run.plan.baseline and p.cell.id == cell and p.counted
    ]
    if len(mine) < 2:
        return []
    first = {(r.prompt_id, r.turn): r for r in mine[0].counted}
    return [
        Match(first[r.prompt_id, r.turn], r, p.launch.round)
        for p in mine[1:]
        for r in p.counted
        if (r.prompt_id, r.turn) in first
    ]
