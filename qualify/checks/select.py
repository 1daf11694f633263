"""How a run is looked at: its planned places, and the records that count in each.

A place is one planned cell inside one planned launch. Checks walk over places so that a
cell which was never measured is seen as missing instead of being passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from qualify.plan import CellPlan, LaunchPlan, Plan
from qualify.records.run import Run
from qualify.records.schema import CellEnd, LaunchRecord, Record

TARGET_ONLY = "target-only"
# How a mode proposes. A lookup drafter copies from the text: proposing nothing is a right
# answer for it, and never a sign of a dead drafter.
NONE, LOOKUP, MODEL = "none", "lookup", "model"


def plan_launch_id(launch: str) -> str:
    """The plan's id of a launch attempt: `r1.ngram#2` -> `r1.ngram`."""
    return launch.rsplit("#", 1)[0]


@dataclass(frozen=True)
class Place:
    """One planned cell in one planned launch, with what came of it."""

    launch: LaunchPlan
    cell: CellPlan
    end: CellEnd | None
    records: tuple[Record, ...]  # measured, in prompt order
    drafter: str = NONE

    @property
    def side(self) -> str:
        return self.launch.side.name

    @property
    def mode(self) -> str:
        return self.launch.side.mode

    @property
    def speculative(self) -> bool:
        return self.drafter != NONE

    @property
    def counted(self) -> tuple[Record, ...]:
        return tuple(r for r in self.records if counts(r))


def counts(record: Record) -> bool:
    """May this request enter a figure? It succeeded, and the server counted its tokens.

    A "success" without a single token is none: it would divide by zero and look fast.
    """
    return record.ok and completion_tokens(record) is not None


def completion_tokens(record: Record) -> int | None:
    """N as the server counted it; None where it did not, or where it counted nothing."""
    n = record.usage.completion_tokens
    return n if n is not None and n > 0 else None


def drafter_of(plan: Plan, mode: str) -> str:
    """none, lookup or model: as the engine definition says, else as the mode's name does."""
    modes = plan.engine.get("modes")
    entry = modes.get(mode) if isinstance(modes, dict) else None
    said = entry.get("drafter") if isinstance(entry, dict) else None
    if isinstance(said, str):
        return said if said in (NONE, MODEL) else LOOKUP
    if mode == TARGET_ONLY:
        return NONE
    return LOOKUP if mode.startswith(("ngram", "lookup")) else MODEL


@lru_cache(maxsize=8)
def _places(key: _RunKey) -> tuple[Place, ...]:
    run = key.run
    ends = {(plan_launch_id(e.launch), e.cell): e for e in run.cells}
    records: dict[tuple[str, str], list[Record]] = {}
    for record in run.measured():
        records.setdefault((plan_launch_id(record.launch), record.cell), []).append(record)
    found = []
    for launch in run.plan.launches:
        drafter = drafter_of(run.plan, launch.side.mode)
        for cell in launch.cells:
            mine = records.get((launch.id, cell.id), [])
            mine.sort(key=lambda r: (r.index, r.turn))
            end = ends.get((launch.id, cell.id))
            found.append(Place(launch, cell, end, tuple(mine), drafter))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _RunKey:
    """A run as a cache key: by identity, because its records are too many to hash."""

    run: Run

    def __hash__(self) -> int:
        return id(self.run)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RunKey) and other.run is self.run


def places(run: Run) -> tuple[Place, ...]:
    """Every planned cell of every planned launch, in plan order, measured or not."""
    return _places(_RunKey(run))


def by_side_and_cell(run: Run) -> dict[tuple[str, str], list[Place]]:
    """(side, cell id) -> its places over all rounds and launches, in plan order."""
    groups: dict[tuple[str, str], list[Place]] = {}
    for place in places(run):
        groups.setdefault((place.side, place.cell.id), []).append(place)
    return groups


def measuring(found: Iterable[Place]) -> Iterator[Place]:
    """Those that enter comparisons of modes; the baseline's second launch stays out."""
    return (p for p in found if p.launch.purpose == "measure")


def launch_record(run: Run, launch: str) -> LaunchRecord | None:
    """What the launch attempt said of itself when it started; None when unknown."""
    for entry in run.launches:
        if entry.launch == launch and entry.status == "started":
            return entry
    return None


def subject(side: str, cell: str) -> str:
    return f"{side}, {cell}"


def plural(n: int, word: str, many: str | None = None) -> str:
    return f"{n:,} {word if n == 1 else many or word + 's'}"
