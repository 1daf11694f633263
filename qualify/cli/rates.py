"""How fast this machine was the last time: rates for estimates, from runs under reports/."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qualify.cli.prepare import Prepared
from qualify.plan import Plan, Side
from qualify.planning.estimate import Estimate, History, Rates, estimate
from qualify.planning.identity import digest_of_cell
from qualify.records.codec import from_dict

REPORTS = Path("reports")
NEWEST = 5  # older runs say little about this machine today
START_S = 5.0  # until a small engine is ready, where nothing better is known


def estimate_for(prepared: Prepared, reports: Path = REPORTS) -> Estimate:
    """The estimate of a plan: earlier runs of the same engine first, stated rates next."""
    return estimate(
        prepared.plan, lambda side: _stated(prepared, side), history(reports, prepared.engine.name)
    )


def _stated(prepared: Prepared, side: Side) -> Rates | None:
    profile = prepared.engine.profiles.get(side.profile or prepared.engine.default_profile)
    rates = profile.rates if profile is not None else None
    if rates is None:
        return None
    return Rates(
        rates.prefill_tps,
        rates.decode_tps,
        START_S if rates.start_s is None else rates.start_s,
        f"the rates that engines/{prepared.engine.name} states",
    )


def history(reports: Path, engine: str) -> History:
    """What runs of that engine took, the newest winning. Unreadable runs are passed over."""
    cells: dict[tuple[str, str], float] = {}
    rates: dict[tuple[str, str | None], Rates] = {}
    folders = [p.parent for p in reports.glob("*/plan.json")]
    for folder in sorted(folders, key=lambda f: f.stat().st_mtime)[-NEWEST:]:
        try:
            plan = from_dict(Plan, json.loads((folder / "plan.json").read_bytes()))
        except (OSError, ValueError):
            continue
        if plan.engine.get("name") == engine:
            _cells(folder, plan, cells)
            _rates(folder, plan, rates)
    return History(cells, rates)


def _cells(folder: Path, plan: Plan, found: dict[tuple[str, str], float]) -> None:
    planned = {
        (launch.id, cell.id): (launch.side.name, digest_of_cell(cell))
        for launch in plan.launches
        for cell in launch.cells
    }
    for line in _lines(folder / "cells.jsonl"):
        key = planned.get((str(line.get("launch")).rsplit("#", 1)[0], str(line.get("cell"))))
        if key is not None and line.get("status") == "finished":
            found[key] = float(line["duration_s"])


def _rates(folder: Path, plan: Plan, found: dict[tuple[str, str | None], Rates]) -> None:
    """Pooled over single-stream records: tokens / time to first token, then decode alone."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for line in _lines(folder / "records.jsonl"):
        timing, usage = line.get("timing") or {}, line.get("usage") or {}
        if not line.get("ok") or line.get("concurrency") != 1 or line.get("phase") == "probe":
            continue
        first, last = timing.get("t_first_s"), timing.get("t_last_s")
        produced, n_first = usage.get("completion_tokens"), timing.get("n_first")
        if usage.get("cached_tokens") or first is None or last is None:
            continue
        if produced is None or n_first is None:
            continue
        total = sums[str(line["side"])]
        total[0] += usage.get("prompt_tokens") or 0
        total[1] += first
        total[2] += produced - n_first
        total[3] += last - first
    profiles = {launch.side.name: launch.side.profile for launch in plan.launches}
    start_s = _start_s(folder)
    for side, (prefilled, prefill_s, decoded, decode_s) in sums.items():
        if prefilled and prefill_s and decoded and decode_s and side in profiles:
            found[side, profiles[side]] = Rates(
                prefilled / prefill_s, decoded / decode_s, start_s, f"the run {folder.name}"
            )


def _start_s(folder: Path) -> float:
    waits = [
        line["origin"]["ready"]["waited_s"]
        for line in _lines(folder / "launches.jsonl")
        if isinstance((line.get("origin") or {}).get("ready"), dict)
    ]
    return sum(waits) / len(waits) if waits else START_S


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for text in file:
            try:
                value = json.loads(text)
            except ValueError:
                continue  # a line cut by a kill
            if isinstance(value, dict):
                yield value
