"""summary.json: every figure of a run, the same bytes for the same records.

Top level: schema, run, campaign, engine, plan_hash, baseline, created, outcome {word,
exit_code, sentence, demanded, informing}, margin {value, source}, cells (one for each planned
cell of each launch), sides (pooled over rounds), pairs, self_pairs, crossovers,
recommendation, damage, superseded, warnings. The fields of each entry are those of the
dataclasses CellStats, SideCell, PairResult, Crossover and Row; docs/summary.md lists them.
Missing is null. Numbers are rounded to 9 significant digits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from qualify.analysis.analyse import Analysis
from qualify.checks.outcome import RunOutcome
from qualify.checks.verdict import Verdict
from qualify.records.run import Run

SCHEMA = 1
_DIGITS = 9


def summarise_run(run: Run, analysis: Analysis, outcome: RunOutcome) -> dict[str, Any]:
    """JSON-ready; no clock, no host, nothing that the records and the plan do not hold."""
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "run": run.id,
        "campaign": run.plan.campaign.get("campaign"),
        "engine": run.plan.engine.get("name"),
        "plan_hash": run.plan.hash,
        "baseline": run.plan.baseline,
        "created": run.meta.get("created"),
        "outcome": {
            "word": outcome.word,
            "exit_code": int(outcome.exit_code),
            "sentence": outcome.sentence,
            "demanded": outcome.counts,
            "informing": outcome.informing,
        },
        **{f.name: plain(getattr(analysis, f.name)) for f in dataclasses.fields(analysis)},
        "damage": list(run.damage),
        "superseded": len(run.superseded),
        "warnings": list(run.plan.warnings),
    }
    rounded: dict[str, Any] = _rounded(told)
    return rounded


def verdicts_json(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """verdicts.json: one object a verdict, in the order in which they were judged."""
    return [_rounded(plain(v)) for v in verdicts]


def plain(value: Any) -> Any:
    """Dataclasses, tuples and mappings as plain JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return value
