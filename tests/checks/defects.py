"""A small campaign on the scripted engine with a defect planted, judged like any run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.plan import Plan
from qualify.planning.probes import with_probes
from qualify.records.run import Run
from qualify.records.store import load_run
from tests.run.drive import cell, drive, engine, plan

Check = Callable[[Run, Settings], list[Verdict]]

ENGINE: dict[str, Any] = {
    "name": "scripted",
    "default_profile": "default",
    "modes": {"target-only": {"drafter": "none"}, "mtp": {"drafter": "model"}},
}


def with_checks(
    checks: Mapping[str, Any], profile: Mapping[str, Any], sides: tuple[str, ...] = ("target-only",)
) -> Plan:
    """One cell a side, and whatever the named checks have sent besides."""
    made = plan([cell("prose")], sides)
    definition = {**ENGINE, "profiles": {"default": dict(profile)}}
    launches = with_probes(made.launches, checks, definition)
    return dataclasses.replace(
        made, launches=tuple(launches), engine=definition, checks=dict(checks)
    )


def run_on(folder: Path, the_plan: Plan, *options: str, dialect: str = "sglang") -> Run:
    """A finished run on a scripted engine that was started with `options`."""
    folder.mkdir(parents=True)
    drive(folder / "run", the_plan, engine(folder, *options, dialect=dialect))
    return load_run(folder / "run")


def only(check: Check, run: Run) -> Verdict:
    """The one verdict of a check on a run of one side."""
    (verdict,) = check(run, Settings(run.plan.checks))
    return verdict
