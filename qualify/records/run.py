"""A run read back from its folder: what checks, analysis and reports work on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualify.evals.nouns import Completion, Score
from qualify.plan import Plan
from qualify.records.schema import CellEnd, LaunchRecord, ProbeRecord, Record


@dataclass(frozen=True)
class Run:
    """Everything that stands. `records` holds those of finished or failed cells only;
    `superseded` keeps the rest. `damage` names lines that could not be read."""

    id: str
    folder: Path
    plan: Plan
    launches: tuple[LaunchRecord, ...]
    cells: tuple[CellEnd, ...]  # the one that stands for each planned cell, in plan order
    records: tuple[Record, ...]
    superseded: tuple[Record, ...]
    damage: tuple[str, ...]
    meta: dict[str, Any]
    completions: tuple[Completion, ...] = ()  # of evaluations, as they were written
    scores: tuple[Score, ...] = ()
    probes: tuple[ProbeRecord, ...] = ()  # those that stand, see `records.probes`

    def measured(self, launch: str | None = None, cell: str | None = None) -> list[Record]:
        """Measured records, in the order they ended; of one launch attempt and/or cell."""
        return [
            r
            for r in self.records
            if r.phase == "measured"
            and (launch is None or r.launch == launch)
            and (cell is None or r.cell == cell)
        ]
