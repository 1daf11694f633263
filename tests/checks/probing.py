"""A planned probe on a scripted engine with or without a fault, and what its check says."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from qualify.checks.all import CHECKS
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.plan import Plan
from qualify.planning.probes import with_probes
from qualify.records.store import load_run
from tests.run.drive import cell, drive, engine, plan
from tests.run.flawed import Threaded
from tests.scripted_engine.engine import ScriptedEngine


def probing_plan(check: str, options: dict[str, Any], side: str = "mtp") -> Plan:
    """One short cell on one side, and the probe of `check`."""
    made = plan([cell("prose", count=1, warmup=0)], (side,))
    launches = tuple(with_probes(made.launches, {check: options}, {}))
    assert launches[0].probes, "no probe was planned"
    return dataclasses.replace(made, launches=launches, checks={check: options})


def judged(
    folder: Path, served: ScriptedEngine, check: str, options: dict[str, Any], side: str = "mtp"
) -> Verdict:
    """Attach to `served`, send the cell and the probe, and return the check's one verdict."""
    with Threaded(served) as url:
        folder.mkdir()
        run_folder = folder / "run"
        drive(run_folder, probing_plan(check, options, side), engine(folder, url=url))
    run = load_run(run_folder)
    (verdict,) = dict(CHECKS)[check](run, Settings(run.plan.checks))
    return verdict
