"""Warm and session cells: was anything reused, and is each turn's reuse on record?"""

from __future__ import annotations

from typing import Any

from qualify.checks.select import by_side_and_cell, plural, subject
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side and cell whose cache policy is warm or session.

    In a session the first turn has nothing to reuse; every later one must.
    """
    verdicts = []
    for (side, cell), group in by_side_and_cell(run).items():
        policy = group[0].cell.cache
        counted = [r for p in group for r in p.counted]
        if policy == "cold" or not counted:
            continue
        due = [r for r in counted if policy == "warm" or r.turn > 0]
        unknown = [r for r in due if r.usage.cached_tokens is None]
        cold = [r for r in due if r.usage.cached_tokens == 0]
        evidence: dict[str, Any] = {
            "side": side,
            "cell": cell,
            "policy": policy,
            "turns": _turns(counted),
            "due": len(due),
            "unknown": len(unknown),
            "without_reuse": len(cold),
        }
        name, n = subject(side, cell), plural(len(due), "request")
        if not due:
            text = "No request was due to reuse anything."
            verdicts.append(Verdict("warmth", name, "not-run", text, evidence, demanded=False))
        elif cold:
            text = f"{len(cold)} of {n} reused nothing, though the cell is labelled {policy}."
            verdicts.append(Verdict("warmth", name, "fail", text, evidence))
        elif unknown:
            text = f"The engine did not report its reuse on {len(unknown)} of {n}."
            verdicts.append(Verdict("warmth", name, "inconclusive", text, evidence))
        else:
            reused = sum(r.usage.cached_tokens or 0 for r in due)
            share = reused / max(1, sum(r.tokens for r in due))
            text = f"{n} reused {reused:,} prompt tokens, {share:.0%} of what they sent."
            verdicts.append(Verdict("warmth", name, "pass", text, evidence))
    return verdicts


def _turns(records: list[Record]) -> list[dict[str, int | None]]:
    turns = []
    for turn in sorted({r.turn for r in records}):
        mine = [r for r in records if r.turn == turn]
        cached = [r.usage.cached_tokens for r in mine]
        known = [c for c in cached if c is not None]
        turns.append(
            {
                "turn": turn,
                "requests": len(mine),
                "prompt_tokens": sum(r.tokens for r in mine),
                "reused_tokens": sum(known) if len(known) == len(cached) else None,
            }
        )
    return turns
