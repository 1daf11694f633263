"""A coherent output proves nothing about the drafter (rule 9)."""

from __future__ import annotations

from typing import Any

from qualify.checks.pool import Pool, pool
from qualify.checks.select import (
    MODEL,
    Place,
    places,
    plural,
)
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.records.run import Run

DEAD_BELOW = 1.05  # accept length of a drafter that contributes nothing, bonus included


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each speculative side, pooled over all of its workloads.

    Only all workloads together convict a drafter: a weak one varies with the prompt, a
    dead one does not. A lookup drafter that proposes nothing is null, not dead.
    """
    if settings.off("acceptance"):
        return []
    floor = settings.number("acceptance", "floor")
    sides: dict[str, list[Place]] = {}
    for place in places(run):
        if place.speculative and place.counted:
            sides.setdefault(place.side, []).append(place)
    return [_judge(side, mine, floor) for side, mine in sides.items()]


def _judge(side: str, mine: list[Place], floor: float | None) -> Verdict:
    total = pool(r for p in mine for r in p.counted)
    cells: dict[str, Pool] = {
        cell: pool(r for p in mine if p.cell.id == cell for r in p.counted)
        for cell in dict.fromkeys(p.cell.id for p in mine)
    }
    lengths = {c: p.accept_length for c, p in cells.items() if p.accept_length is not None}
    evidence: dict[str, Any] = {
        "side": side,
        "requests": total.requests,
        "reporting": total.reporting,
        "V": total.V,
        "P": total.P,
        "C": total.C,
        "draft_match_rate": total.draft_match_rate,
        "accept_length": total.accept_length,
        "proposed_per_step": total.proposed_per_step,
        "accept_length_by_cell": lengths,
        "floor": floor,
    }

    def verdict(outcome: Outcome, sentence: str) -> Verdict:
        return Verdict("acceptance", side, outcome, sentence, evidence)

    model = mine[0].drafter == MODEL
    if not total.reporting or total.C is None:
        return verdict(
            "inconclusive",
            f"The engine did not report what was drafted for "
            f"{plural(total.requests, 'request')}; not reported is neither 0 nor 1.",
        )
    if not model and not total.P:
        return verdict(
            "pass",
            "The lookup drafter proposed nothing on any workload: its acceptance is null, "
            "which is not a dead drafter.",
        )
    if total.accept_length is None:
        if model and total.V == 0:
            return verdict("inconclusive", "Speculation is configured, but no step was verified.")
        if not model and total.draft_match_rate is not None:
            return verdict("pass", f"{_match(total)}; verify steps were not reported.")
        return verdict("inconclusive", "The engine did not report its verify steps.")
    spread = (
        f", {min(lengths.values()):.3g} to {max(lengths.values()):.3g} over "
        f"{plural(len(lengths), 'cell')}"
        if len(lengths) > 1
        else ""
    )
    said = f"accept length {total.accept_length:.3g} (bonus included{spread}); {_match(total)}"
    if model and total.accept_length < DEAD_BELOW:
        return verdict("fail", f"The drafter contributes nothing: {said}.")
    if model and floor is not None and total.accept_length < floor:
        return verdict("fail", f"Below the campaign's floor of {floor:g}: {said}.")
    return verdict("pass", f"{said[0].upper()}{said[1:]}.")


def _match(total: Pool) -> str:
    if total.P is None or total.C is None or not total.P:
        return "proposals not reported"
    width = f", {total.proposed_per_step:.3g} a step" if total.proposed_per_step else ""
    return f"{total.C:,} of {total.P:,} proposed drafts right{width}"
