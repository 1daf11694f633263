"""What stands and what is still to do: the store, read at the start and kept up to date."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

from qualify.plan import CellPlan, LaunchPlan
from qualify.records.schema import CellEnd, LaunchRecord, Record
from qualify.records.store import (
    CELLS,
    LAUNCHES,
    RECORDS,
    Store,
    planned_launch,
    read_lines,
    standing_cells,
)


def now() -> str:
    """UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Journal:
    """Every end of a cell and every attempt at a launch of one run."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store, self.run_id = store, run_id
        damage: list[str] = []
        folder = store.folder
        self._ends = list(read_lines(CellEnd, folder / CELLS, damage))
        self._attempts: dict[str, int] = {}
        for started in read_lines(LaunchRecord, folder / LAUNCHES, damage):
            self._saw_attempt(started.launch)
        records = list(read_lines(Record, folder / RECORDS, damage))
        for record in records:  # a kill may come after a record and before its launch's line
            self._saw_attempt(record.launch)
        self._supersede(records)
        self.damage = tuple(damage)

    def _saw_attempt(self, attempt: str) -> None:
        planned, said = planned_launch(attempt), attempt.rpartition("#")[2]
        number = int(said) if said.isdecimal() else 0
        self._attempts[planned] = max(self._attempts.get(planned, 0), number)

    def _supersede(self, records: Iterable[Record]) -> None:
        """Close each cell that an earlier start left without an end; its records stay."""
        ended = {(end.launch, end.cell) for end in self._ends}
        left: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            if record.phase != "probe" and (record.launch, record.cell) not in ended:
                left.setdefault((record.launch, record.cell), []).append(record)
        for (attempt, cell), found in left.items():
            self.end(
                CellEnd(
                    run=self.run_id,
                    launch=attempt,
                    cell=cell,
                    status="superseded",
                    reason="an earlier start ended before this cell did",
                    requests=len(found),
                    ok=sum(r.ok for r in found),
                    started_at=found[0].started_at,
                    duration_s=0.0,
                    window_s=None,
                )
            )

    def end(self, end: CellEnd) -> None:
        self.store.append(end)
        self._ends.append(end)

    def fail(self, attempt: str, cell: CellPlan, reason: str) -> CellEnd:
        """End a cell of which nothing could be measured."""
        end = CellEnd(
            run=self.run_id,
            launch=attempt,
            cell=cell.id,
            status="failed",
            reason=reason,
            requests=cell.prompts.count * cell.prompts.turns,
            ok=0,
            started_at=now(),
            duration_s=0.0,
            window_s=None,
        )
        self.end(end)
        return end

    def pending(self, launch: LaunchPlan) -> list[CellPlan]:
        """Cells of this launch that no attempt has finished."""
        standing = standing_cells(self._ends)
        done = {key for key, end in standing.items() if end.status == "finished"}
        return [cell for cell in launch.cells if (launch.id, cell.id) not in done]

    def count(self, status: Literal["finished", "failed"]) -> int:
        return sum(end.status == status for end in standing_cells(self._ends).values())

    def next_attempt(self, launch: LaunchPlan) -> str:
        number = self._attempts[launch.id] = self._attempts.get(launch.id, 0) + 1
        return f"{launch.id}#{number}"

    def launched(
        self,
        launch: LaunchPlan,
        attempt: str,
        status: Literal["started", "stopped", "failed"],
        origin: dict[str, Any],
        reason: str | None = None,
    ) -> None:
        side = launch.side
        self.store.append(
            LaunchRecord(
                run=self.run_id,
                launch=attempt,
                plan_launch=launch.id,
                round=launch.round,
                side=side.name,
                mode=side.mode,
                status=status,
                at=now(),
                origin=origin,
                reason=reason,
            )
        )
