"""Byte parity of requests that join others in the middle of their decoding.

A closed loop starts its requests together; what a batch that changes under way does to an
answer is seen here. The prompts are measured ones, so that each answer alone is known too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qualify.checks.pairing import planned_pairs
from qualify.checks.probed import Probed, difference, greedy, probed
from qualify.checks.select import plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record

Answers = dict[str, Record]


def check(run: Run, settings: Settings) -> list[Verdict]:
    """Each side against itself in a second pass, then each planned pair; nothing where no
    staggered requests were sent."""
    found = {one.side: one for one in probed(run, "parity")}
    verdicts = []
    unstable: dict[str, set[str]] = {}
    for side, one in found.items():
        verdict = _itself(run, one)
        unstable[side] = set(verdict.evidence["differing"])
        verdicts.append(verdict)
    for side, reference in planned_pairs(run.plan, settings):
        if side in found and reference in found:
            shaky = unstable[side] | unstable[reference]
            verdicts.append(_pair(found[side], found[reference], shaky))
    return verdicts


def _answers(one: Probed, number: int) -> Answers:
    return {r.prompt_id: r for r in one.requests("staggered", number=number)}


def _itself(run: Run, one: Probed) -> Verdict:
    """Pass against pass, and against the same prompts measured alone."""
    first, second = _answers(one, 0), _answers(one, 1)
    alone = {
        r.prompt_id: r
        for r in run.measured()
        if r.side == one.side and r.concurrency == 1 and r.ok and r.prompt_id in first
    }
    together = overlapping(list(first.values()))
    evidence: dict[str, Any] = {
        "sides": [one.side],
        "self": True,
        "blames": [one.side],
        "requests": len(first),
        "joined_others": together,
        "differing": [],
        "as_alone": None,
    }
    name = f"{one.side} against itself, staggered arrivals"

    def verdict(outcome: Any, text: str) -> Verdict:
        return Verdict("parity", name, outcome, text, evidence)

    if one.failed is not None:
        return verdict("inconclusive", f"The probe broke off: {one.failed}")
    broken = [r for r in (*first.values(), *second.values()) if not r.ok]
    if broken or not first:
        return verdict("inconclusive", f"{plural(len(broken), 'request')} failed.")
    if not all(greedy(r) for r in first.values()):
        text = "Temperature is above 0: outputs are drawn, so byte parity says nothing."
        return verdict("not-run", text)
    if together < 2:
        return verdict("inconclusive", "No two of the requests ran at the same time.")
    parts = _parting(first, second)
    apart = _parting(first, alone)
    evidence["differing"] = sorted({*parts, *apart})
    evidence["as_alone"] = len(alone) - len(apart) if alone else None
    if parts or apart:
        where, how = next(iter({**parts, **apart}.items()))
        other = "a second pass" if parts else "the same prompts alone"
        text = f"{len({*parts, *apart})} of {plural(len(first), 'prompt')} differ from {other}: "
        return verdict("fail", f"{text}{where}, {how}.")
    told = f", and {len(alone)} of them as alone" if alone else ""
    return verdict(
        "pass",
        f"{plural(len(first), 'request')} that joined one another give the same tokens in two "
        f"passes{told}.",
    )


def _pair(ours: Probed, theirs: Probed, unstable: set[str]) -> Verdict:
    mine, reference = _answers(ours, 0), _answers(theirs, 0)
    name = f"{ours.side} against {theirs.side}, staggered arrivals"
    both = [p for p in mine if p in reference and mine[p].ok and reference[p].ok]
    parts = {p: how for p, how in _parting(mine, reference).items() if p in both}
    evidence: dict[str, Any] = {
        "sides": [ours.side, theirs.side],
        "blames": [ours.side],
        "prompts_compared": len(both),
        "differing": sorted(parts),
        "not_self_reproducible": sorted(unstable),
    }
    if not both or not all(greedy(mine[p]) for p in both):
        text = "No greedy output of this pair could be compared."
        return Verdict("parity", name, "inconclusive", text, evidence)
    if parts:
        where, how = next(iter(parts.items()))
        text = f"{len(parts)} of {plural(len(both), 'prompt')} differ: {where}, {how}."
        if set(parts) <= unstable:
            text += " They do not reproduce themselves, so the difference proves nothing."
            return Verdict("parity", name, "inconclusive", text, evidence)
        return Verdict("parity", name, "fail", text, evidence)
    tokens = sum(mine[p].usage.completion_tokens or 0 for p in both)
    text = f"Identical: {plural(len(both), 'prompt')}, {tokens:,} tokens."
    return Verdict("parity", name, "pass", text, evidence)


def _parting(a: Answers, b: Answers) -> dict[str, str]:
    """Prompt -> where its two answers part, for those that are in both and do."""
    return {p: how for p in a if p in b and (how := difference(a[p], b[p])) is not None}


def overlapping(records: Sequence[Record]) -> int:
    """How many requests ran while another one of them did."""
    spans = [(r.t_start_s, r.t_start_s + (r.timing.t_end_s or 0.0)) for r in records]
    return sum(
        any(s < end and e > start for j, (s, e) in enumerate(spans) if j != i)
        for i, (start, end) in enumerate(spans)
    )
