"""Stream integrity: how many requests succeeded, and why the others do not count."""

from __future__ import annotations

from collections import Counter

from qualify.checks.select import by_side_and_cell, completion_tokens, plural, subject
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.records.run import Run
from qualify.records.schema import Record


def cause_of(record: Record) -> str | None:
    """Why a request does not count; None for one that does."""
    if record.failure is not None:
        return record.failure.cause
    if not record.ok:
        return "unknown"
    if record.usage.completion_tokens is None:
        return "no-usage"
    return None if completion_tokens(record) else "no-tokens"


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and cell that sent anything; any failure fails it."""
    verdicts = []
    for (side, cell), group in by_side_and_cell(run).items():
        records = [r for p in group for r in p.records]
        if not records:
            continue
        causes = Counter(c for r in records if (c := cause_of(r)) is not None)
        notes = Counter(note for r in records for note in r.notes)
        good = len(records) - causes.total()
        examples = {
            cause: next(
                (r.failure.message for r in records if r.failure and r.failure.cause == cause),
                None,
            )
            for cause in causes
        }
        evidence = {
            "side": side,
            "cell": cell,
            "requests": len(records),
            "counted": good,
            "causes": dict(sorted(causes.items())),
            "examples": examples,
            "notes": dict(sorted(notes.items())),
        }
        said = f"{good:,} of {plural(len(records), 'request')} succeeded"
        outcome: Outcome = "fail" if causes else "pass"
        if causes:
            why = ", ".join(f"{cause} {n:,}x" for cause, n in causes.most_common())
            said += f"; not counted: {why}"
        verdicts.append(Verdict("stream", subject(side, cell), outcome, f"{said}.", evidence))
    return verdicts
