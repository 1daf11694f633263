"""What one decode step spends its time on, where the engine tells."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from qualify.analysis.speculation import steps_of
from qualify.records.schema import Record

REST = "rest"
BEFORE = ("prefill", "priming")  # phases that end with the first token: no part of a decode step


@dataclass(frozen=True)
class Phases:
    """ms: phase -> milliseconds of one step, pooled over the requests that report phases.

    `rest` is the step's time that no phase explains; it can be below 0 where the engine's
    phases overlap or cover more than decoding. Prefill is no part of a step; priming, which
    belongs to it, stands apart.
    """

    requests: int
    steps: int
    cycle_ms: float
    ms: dict[str, float]
    priming_ms: float | None


def phases_of(records: Iterable[Record], *, speculative: bool) -> Phases | None:
    """None where no request reports phases, or steps are not known."""
    found = [
        (steps, r.speculation.phases_s)
        for r in records
        if r.speculation is not None
        and r.speculation.phases_s
        and (steps := steps_of(r, speculative=speculative)) is not None
    ]
    count = sum(s.count for s, _ in found)
    if not count:
        return None
    cycle_ms = math.fsum(s.duration_s for s, _ in found) / count * 1e3
    names = dict.fromkeys(n for _, told in found for n in told if n not in BEFORE)
    ms = {n: math.fsum(told.get(n, 0.0) for _, told in found) / count * 1e3 for n in names}
    primed = [told["priming"] for _, told in found if "priming" in told]
    return Phases(
        requests=len(found),
        steps=count,
        cycle_ms=cycle_ms,
        ms={**ms, REST: cycle_ms - math.fsum(ms.values())},
        priming_ms=math.fsum(primed) / len(primed) * 1e3 if primed else None,
    )
