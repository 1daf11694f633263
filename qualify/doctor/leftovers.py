"""What dead runs left running, and how it is swept away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from qualify.doctor.finding import Finding
from qualify.engines.owned import Owned, is_alive, marked_processes, sweep


def leftover_findings(reports: Path) -> Iterator[Finding]:
    """One finding a run folder that still owns processes; one that all is well otherwise."""
    found = False
    for path in sorted(reports.glob("*/owned/*.json")):
        try:
            owned = Owned(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue
        found = True
        run = path.parent.parent.name
        if is_alive(owned.harness_pid, owned.harness_started):
            says = f"{owned.launch} of {run} is being measured (pid {owned.harness_pid})"
            yield Finding("runs", "warn", says, "Measure one thing at a time on a machine.")
            continue
        left = marked_processes(owned.marker, owned.written_at)
        pids = ", ".join(str(p.pid) for p in left) or "none"
        yield Finding(
            "leftovers",
            "warn",
            f"{owned.launch} of {run} ended without cleaning up; processes left: {pids}",
            "Run: qualify doctor --sweep (or resume that run, which sweeps first)",
        )
    if not found:
        yield Finding("leftovers", "ok", "no run left anything behind")


def sweep_all(reports: Path) -> Iterator[Finding]:
    """End what dead harnesses left; living ones are let alone."""
    for folder in sorted({p.parent.parent for p in reports.glob("*/owned/*.json")}):
        for swept in sweep(folder):
            ended = ", ".join(map(str, swept.ended)) or "none"
            yield Finding("swept", "ok", f"{swept.launch}: {swept.note} (processes: {ended})")
