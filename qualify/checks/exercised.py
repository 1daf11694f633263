"""What the probe `graphs` (and `capacity`, for the longest context) really had served."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from qualify.checks.captures import Captures
from qualify.records.run import Run
from qualify.records.schema import ProbeRecord


@dataclass(frozen=True)
class Exercise:
    """sizes: batches served whole. fault: the first thing that went wrong, as a sentence."""

    sizes: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    longest_tokens: int | None = None
    graph_steps: int = 0  # decode lines in the batches' part of the log that ran as graphs
    eager_steps: int = 0
    fault: str | None = None

    @property
    def complete(self) -> bool:
        served = bool(self.asked) and set(self.asked) <= set(self.sizes)
        return served and self.longest_tokens is not None

    @property
    def lacking(self) -> str:
        if not self.asked:
            return "every batch size and the longest context"
        missing = sorted(set(self.asked) - set(self.sizes))
        shown = ", ".join(str(n) for n in missing)
        return f"batches of {shown}" if missing else "the longest context"

    def to_json(self) -> dict[str, Any]:
        return {
            "sizes": list(self.sizes),
            "asked": list(self.asked),
            "longest_tokens": self.longest_tokens,
            "graph_steps": self.graph_steps,
            "eager_steps": self.eager_steps,
            "fault": self.fault,
        }


def exercise_of(run: Run, side: str, logs: list[Captures], launches: list[str]) -> Exercise:
    """From probes.jsonl and the part of the log that was written while a batch ran."""
    mine = [p for p in run.probes if p.side == side]
    batches = [p for p in mine if p.probe == "graphs"]
    found = Exercise(longest_tokens=_longest(mine))
    item = next(
        (p for launch in run.plan.launches for p in launch.probes if launch.side.name == side
         and p.name == "graphs"), None,
    )  # fmt: skip
    if item is None:
        return found
    asked = tuple(sorted(item.options["batches"]))
    captured = set(item.options["sizes"])
    served: list[int] = []
    for size in asked:
        sent = [p.request for p in batches if p.step == "batch" and p.seen.get("size") == size]
        bad = next((r for r in sent if r is not None and not r.ok), None)
        if bad is not None and bad.failure is not None:
            text = f"A batch of {size} failed: {bad.failure.cause}: {bad.failure.message}"
            return replace(found, asked=asked, sizes=tuple(served), fault=text)
        if len(sent) == size:
            served.append(size)
    long = next((p.request for p in batches if p.step == "longest" and p.request), None)
    fault = next((p.reason for p in mine if p.status == "failed" and p.probe == "graphs"), None)
    if long is not None and long.failure is not None:
        fault = f"The longest context failed: {long.failure.cause}: {long.failure.message}"
    found = replace(found, asked=asked, sizes=tuple(served), fault=fault)
    return _with_steps(found, batches, logs, launches, captured)


def _longest(mine: list[ProbeRecord]) -> int | None:
    sent = [
        p.request
        for p in mine
        if (p.probe, p.step) in (("graphs", "longest"), ("capacity", "at-limit"))
    ]
    served = [r.tokens + (r.usage.completion_tokens or 0) for r in sent if r is not None and r.ok]
    return max(served, default=None)


def _with_steps(
    found: Exercise,
    batches: list[ProbeRecord],
    logs: list[Captures],
    launches: list[str],
    captured: set[int],
) -> Exercise:
    """Count the decode lines of each batch; one at a captured size that ran eagerly is a fault."""
    graph = eager = 0
    fault = found.fault
    for launch, log in zip(launches, logs, strict=True):
        marks = [p for p in batches if p.launch == launch and "log_bytes" in p.seen]
        starts = [p for p in marks if p.step == "batch-starts"]
        ends = [p for p in marks if p.step == "batch-ended"]
        for start, end in zip(starts, ends, strict=False):
            low, high = start.seen["log_bytes"], end.seen["log_bytes"]
            if low is None or high is None:
                continue
            for step in log.steps:
                if not low <= step.offset < high:
                    continue
                graph, eager = graph + step.graph, eager + (not step.graph)
                if not step.graph and step.running in captured and fault is None:
                    fault = f"A step of {step.running} requests ran eagerly, though that batch"
                    fault += " size was to be captured."
    return replace(found, graph_steps=graph, eager_steps=eager, fault=fault)
