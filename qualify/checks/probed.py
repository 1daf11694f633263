"""What a probe wrote of one side, as a check reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import ProbeRecord, Record


@dataclass(frozen=True)
class Probed:
    """Every line of one probe in one launch attempt, in the order they were written.

    failed: why the probe broke off, None where it came to its end.
    """

    side: str
    mode: str
    launch: str
    lines: tuple[ProbeRecord, ...]
    failed: str | None

    def requests(self, step: str, **seen: Any) -> list[Record]:
        """Requests of one step whose notes hold all of `seen`."""
        return [
            line.request
            for line in self.lines
            if line.step == step
            and line.request is not None
            and all(line.seen.get(k) == v for k, v in seen.items())
        ]

    def notes(self, step: str) -> list[dict[str, Any]]:
        return [line.seen for line in self.lines if line.step == step]

    def note(self, step: str) -> dict[str, Any]:
        """The first note of a step; empty where there is none."""
        return next(iter(self.notes(step)), {})


def probed(run: Run, name: str) -> list[Probed]:
    """One entry for each launch attempt in which the probe ended."""
    groups: dict[str, list[ProbeRecord]] = {}
    for line in run.probes:
        if line.probe == name:
            groups.setdefault(line.launch, []).append(line)
    found = []
    for launch, lines in groups.items():
        end = next((line for line in lines if line.status != "step"), None)
        failed = end.reason or "no reason was given" if end and end.status == "failed" else None
        steps = tuple(line for line in lines if line.status == "step")
        found.append(Probed(lines[0].side, lines[0].mode, launch, steps, failed))
    return found


def not_probed(run: Run, settings: Settings, name: str) -> list[Verdict]:
    """Said for each planned side that has no probe of that name, where the campaign names it."""
    if not settings.named(name):
        text = "Not asked for: a campaign names it to have its requests sent."
        return [Verdict(name, "all sides", "not-run", text, {}, demanded=False)]
    have = {p.side for p in probed(run, name)}
    sides = dict.fromkeys(launch.side.name for launch in run.plan.launches)
    text = "Its requests were not sent: the launch did not get that far."
    return [Verdict(name, side, "not-run", text, {}) for side in sides if side not in have]


def difference(a: Record, b: Record) -> str | None:
    """Where two answers to the same prompt part, in words; None where they are the same.

    Over ids where both have them, else over text.
    """
    one, other = (a.output_ids, b.output_ids), (a.output_text or "", b.output_text or "")
    unit = "token"
    x: Any = one[0]
    y: Any = one[1]
    if x is None or y is None:
        unit, (x, y) = "character", other
    if x == y:
        return None
    at = next(
        (i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y))
    )
    return f"{unit} {at}, {_at(x, at)} against {_at(y, at)}"


def _at(values: Any, index: int) -> str:
    return repr(values[index]) if index < len(values) else "the end"


def greedy(record: Record) -> bool:
    """Whether equal prompts must give equal bytes."""
    return not record.request.get("temperature")
