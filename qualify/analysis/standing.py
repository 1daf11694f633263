"""Which verdicts stand against a side in a cell: what a recommendation must obey."""

from __future__ import annotations

from collections.abc import Sequence

from qualify.checks.verdict import Verdict


def against(
    verdicts: Sequence[Verdict], side: str, cell: str, workload: str, outcome: str
) -> list[str]:
    """Names of demanded checks with that outcome that concern this side in this cell.

    A verdict without a cell or workload concerns the side everywhere; one without a side
    (the prompts themselves) concerns every side.
    """
    found = [
        v.check
        for v in verdicts
        if v.demanded and v.outcome == outcome and _concerns(v, verdicts, side, cell, workload)
    ]
    return list(dict.fromkeys(found))


def _concerns(
    verdict: Verdict, verdicts: Sequence[Verdict], side: str, cell: str, workload: str
) -> bool:
    evidence = verdict.evidence
    if evidence.get("cell", cell) != cell or evidence.get("workload", workload) != workload:
        return False
    if "side" in evidence:
        return bool(evidence["side"] == side)
    if "blames" in evidence:
        return side in _blamed(verdict, verdicts)
    return side in evidence["sides"] if "sides" in evidence else True


def _blamed(verdict: Verdict, verdicts: Sequence[Verdict]) -> list[str]:
    """When two modes differ, one that agrees with the baseline there is not the one at fault."""
    blamed: list[str] = list(verdict.evidence["blames"])
    if len(blamed) < 2:
        return blamed
    cleared = {
        side
        for v in verdicts
        if v.check == verdict.check
        and v.outcome == "pass"
        and v.evidence.get("cell") == verdict.evidence.get("cell")
        and len(v.evidence.get("blames", ())) == 1
        for side in v.evidence["blames"]
    }
    return [s for s in blamed if s not in cleared] or blamed
