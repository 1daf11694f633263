"""What a change must not alter: the campaign's `expect:` lines."""

from __future__ import annotations

from typing import Any

from qualify.checks.comparison import compare
from qualify.checks.margins import margins_of
from qualify.checks.pairing import Match, cells_of, matches
from qualify.checks.select import plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each expectation: the same output, or the same acceptance."""
    verdicts = []
    for line in run.plan.campaign.get("expect") or []:
        a, b = line["pair"]
        ours, theirs = cells_of(run, a), cells_of(run, b)
        found = {c: list(matches(ours[c], theirs[c])) for c in ours if c in theirs}
        for what in line["same"]:
            verdicts.append(
                _output(run, a, b, found) if what == "output" else _acceptance(a, b, found)
            )
    return verdicts


def _output(run: Run, a: str, b: str, found: dict[str, list[Match]]) -> Verdict:
    margins = margins_of(run)
    results = {cell: compare(ms, margins) for cell, ms in found.items()}
    compared = sum(r.prompts for r in results.values())
    differing = {
        c: list(dict.fromkeys(d.prompt for d in r.differences))
        for c, r in results.items()
        if r.differences
    }
    name = f"{a} and {b}: same output"
    evidence: dict[str, Any] = {"sides": [a, b], "compared": compared, "differing": differing}
    if differing:
        first = next(iter(differing.values()))[0]
        total = sum(len(v) for v in differing.values())
        text = f"The output differs on {total} of {plural(compared, 'prompt')}, first on {first}."
        return Verdict("expect", name, "fail", text, evidence)
    if not compared:
        return Verdict("expect", name, "inconclusive", "No output could be compared.", evidence)
    text = f"The output is the same on {plural(compared, 'prompt')}, as expected."
    return Verdict("expect", name, "pass", text, evidence)


def _acceptance(a: str, b: str, found: dict[str, list[Match]]) -> Verdict:
    name = f"{a} and {b}: same acceptance"
    both = [m for ms in found.values() for m in ms if m.a.speculation and m.b.speculation]
    pairs = [(m, _counts(m.a), _counts(m.b)) for m in both]
    known = [(m, x, y) for m, x, y in pairs if x is not None and y is not None]
    differing = [(m, x, y) for m, x, y in known if x != y]
    evidence: dict[str, Any] = {
        "sides": [a, b],
        "compared": len(known),
        "differing": [
            {"prompt": m.a.prompt_id, a: list(x), b: list(y)} for m, x, y in differing[:20]
        ],
        "counts": "V, C",
    }
    if differing:
        text = (
            f"Acceptance differs on {len(differing)} of {plural(len(known), 'prompt')}: the "
            f"proposals changed, not only their cost."
        )
        return Verdict("expect", name, "fail", text, evidence)
    if not known:
        text = "The engine did not report acceptance on both sides."
        return Verdict("expect", name, "inconclusive", text, evidence)
    text = f"Verify steps and right drafts are the same on {plural(len(known), 'prompt')}."
    return Verdict("expect", name, "pass", text, evidence)


def _counts(record: Any) -> tuple[int, int] | None:
    s = record.speculation
    return (s.V, s.C) if s.V is not None and s.C is not None else None
