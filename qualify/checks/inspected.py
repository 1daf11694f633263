"""What was looked at before a launch, as verdicts: shared by `integrity` and `image`."""

from __future__ import annotations

from typing import Any

from qualify.checks.select import plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.inspect.nouns import faults_from
from qualify.records.run import Run
from qualify.records.schema import ProbeRecord


def verdicts_of(run: Run, settings: Settings, check: str) -> list[Verdict]:
    """One verdict a side: any fault fails it, anything that was not judged leaves it open. None
    where nothing was looked at and nobody asked."""
    sides: dict[str, list[ProbeRecord]] = {}
    for launch in run.plan.launches:
        sides.setdefault(launch.side.name, [])
    for line in run.probes:
        if line.probe == check and line.side in sides:
            sides[line.side].append(line)
    named = settings.named(check)
    return [_judge(side, mine, settings, check) for side, mine in sides.items() if mine or named]


def _judge(side: str, lines: list[ProbeRecord], settings: Settings, check: str) -> Verdict:
    named = settings.named(check)
    steps = [line for line in lines if line.status == "step"]
    failed = next((line.reason for line in lines if line.status == "failed"), None)
    if not steps:
        text = failed or "Nothing was looked at before the launch: nothing says where it lies."
        return Verdict(check, side, "not-run", text, {"side": side}, demanded=named)
    faults = [(line.step, f) for line in steps for f in faults_from(line.seen)]
    errors = [str(line.seen["error"]) for line in steps if "error" in line.seen]
    unjudged = [str(t) for line in steps for t in line.seen.get("unjudged") or ()]
    evidence: dict[str, Any] = {
        "side": side,
        "faults": [{"of": step, "where": f.where, "what": f.what} for step, f in faults[:50]],
        "errors": errors,
        "unjudged": unjudged,
        "seen": {line.step: _facts(line.seen) for line in steps},
    }
    if faults:
        step, first = faults[0]
        more = f" ({plural(len(faults), 'fault')} in all)" if len(faults) > 1 else ""
        text = f"{step.capitalize()}: {first.sentence}{more}"
        return Verdict(check, side, "fail", text, evidence)
    if errors:
        return Verdict(check, side, "not-run", errors[0], evidence, demanded=named)
    if unjudged:
        text = f"Nothing wrong was found; not judged: {'; '.join(unjudged)}."
        outcome: Outcome = "inconclusive" if named else "not-run"
        return Verdict(check, side, outcome, text, evidence, demanded=named)
    looked = " and ".join(_said(line) for line in steps)
    return Verdict(check, side, "pass", f"{looked}: nothing is wrong.", evidence)


def _said(line: ProbeRecord) -> str:
    facts = line.seen.get("facts") or {}
    count = facts.get("tensors")
    held = plural(count, "tensor") if isinstance(count, int) else None
    held = held or plural(int(facts.get("looked_at") or 0), "file")
    return f"{line.step} ({line.seen.get('kind')}) with {held}"


def _facts(seen: dict[str, Any]) -> dict[str, Any]:
    facts = seen.get("facts") or {}
    return {"subject": seen.get("subject"), "kind": seen.get("kind"), **facts}
