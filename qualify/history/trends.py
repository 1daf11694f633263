"""One series for each side and cell over runs that are alike, with its change points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from qualify.analysis.changes import Change, changes
from qualify.errors import UsageError
from qualify.history.store import History

LAST = 100  # runs of a series that are looked at: a quarter of a year of nights

# name -> (column, unit, whether less is better; None where neither is)
METRICS: Mapping[str, tuple[str, str, bool | None]] = {
    "tpot": ("tpot_ms", "ms", True),
    "ttft": ("ttft_s", "s", True),
    "throughput": ("throughput_tok_s", "tok/s", False),
    "accept-length": ("accept_length", "", False),
    "cycle": ("cycle_ms", "ms", None),
    "tail": ("tpot_p99_over_median", "", True),
}


@dataclass(frozen=True)
class Point:
    run: str
    created: datetime
    value: float


@dataclass(frozen=True)
class Trend:
    """``points``: oldest first. ``like``: what all of them have in common, as a short hash."""

    campaign: str
    side: str
    cell: str
    metric: str
    unit: str
    machine: str | None
    like: str
    points: tuple[Point, ...]
    changes: tuple[Change, ...]

    @property
    def since_change(self) -> tuple[Point, ...]:
        """The points after the last change: what the figure is now."""
        return self.points[self.changes[-1].index if self.changes else 0 :]


def trends(
    history: History,
    metric: str,
    campaign: str | None = None,
    side: str | None = None,
    cell: str | None = None,
    last: int = LAST,
) -> list[Trend]:
    """Series of one metric over the ``last`` runs of each. Raises UsageError where the metric is
    unknown."""
    if metric not in METRICS:
        raise UsageError(
            f"There is no metric {metric}.", f"Metrics are {', '.join(sorted(METRICS))}."
        )
    column, unit, _ = METRICS[metric]
    # Distinct: a copy of a run's folder is no second run.
    found = history.ask(
        f"SELECT DISTINCT c.campaign, c.side, c.cell, "
        f'c."like", r.machine, c.run, c.created, c.{column} '
        f"FROM cells c JOIN runs r USING (run, created) WHERE c.{column} > 0 "
        f'ORDER BY c.campaign, c.cell, c.side, c."like", c.created, c.run'
    )
    series: dict[tuple[Any, ...], list[Point]] = {}
    for name, s, c, like, machine, run, created, value in found.rows:
        if campaign in (None, name) and side in (None, s) and cell in (None, c):
            series.setdefault((name, s, c, like, machine), []).append(Point(run, created, value))
    return [
        Trend(n, s, c, metric, unit, machine, like, tuple(kept), _changes(kept))
        for (n, s, c, like, machine), points in series.items()
        for kept in [points[-last:]]
    ]


def _changes(points: list[Point]) -> tuple[Change, ...]:
    return tuple(changes([p.value for p in points]))
