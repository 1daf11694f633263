"""Whether the speculative sides of a pair speculated at all: equal bytes alone do not say so."""

from __future__ import annotations

from typing import Any

from qualify.checks.select import LOOKUP, Place


def idle_drafters(found: list[Place], evidence: dict[str, Any]) -> tuple[bool, str]:
    """Did the speculative sides really speculate? Adds V, P and C to the evidence.

    True when a side with a drafter model committed no draft: equal bytes then say nothing
    about speculation. A lookup drafter that proposed nothing is null, and said.
    """
    counts: dict[str, dict[str, int | None]] = {}
    notes: list[str] = []
    idle = False
    for side, drafter in {(p.side, p.drafter): None for p in found if p.speculative}:
        known = [
            r.speculation
            for p in found
            if p.side == side
            for r in p.counted
            if r.speculation is not None
        ]
        total = {
            key: sum(v) if (v := [x for s in known if (x := getattr(s, key)) is not None]) else None
            for key in ("V", "P", "C")
        }
        counts[side] = total
        if total["C"] is None:
            idle = True
            notes.append(f"the engine did not report what {side} drafted")
        elif total["C"] == 0 or total["V"] == 0:
            if drafter == LOOKUP and not total["P"]:
                notes.append(f"{side} proposed nothing here, so this compares plain decoding")
            else:
                idle = idle or drafter != LOOKUP
                notes.append(f"not one draft of {side} was accepted")
    evidence["speculation"] = counts
    return idle, f" ({'; '.join(notes)})" if notes else ""
