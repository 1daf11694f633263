"""Everything a report says about a run, computed once and shown in every format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qualify.analysis.analyse import Analysis, analyse
from qualify.checks.all import run_checks
from qualify.checks.outcome import RunOutcome, outcome_of
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.report.summary import summarise_run


@dataclass(frozen=True)
class Report:
    run: Run
    verdicts: tuple[Verdict, ...]
    analysis: Analysis
    outcome: RunOutcome
    summary: dict[str, Any]


def assemble(run: Run) -> Report:
    """Judge and analyse a run. Never fails on an empty or half-measured one."""
    verdicts = run_checks(run)
    outcome = outcome_of(run, verdicts)
    analysis = analyse(run, verdicts)
    return Report(run, verdicts, analysis, outcome, summarise_run(run, analysis, outcome))
