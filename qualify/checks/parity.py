"""Byte parity: the baseline against itself first, then every planned pair (rule 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qualify.checks.divergence import Divergence, comparable, diverge
from qualify.checks.pairing import (
    Match,
    baseline_repeats,
    cells_of,
    matches,
    planned_pairs,
)
from qualify.checks.select import (
    LOOKUP,
    Place,
    completion_tokens,
    places,
    plural,
)
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.records.run import Run
from qualify.records.schema import Record

_SHOWN = 10  # differing prompts kept as evidence


@dataclass(frozen=True)
class Comparison:
    """All matched requests of one cell, compared.

    prompts: distinct ones; comparisons: over all rounds. Only distinct prompts are
    independent, so the bound on the rate of differing prompts is over them.
    """

    matched: int
    prompts: int
    comparisons: int
    tokens: int
    by_text: int
    differences: tuple[Divergence, ...]

    @property
    def differing(self) -> int:
        """Distinct prompts that differ at least once."""
        return len({d.prompt for d in self.differences})

    def evidence(self) -> dict[str, Any]:
        return {
            "matched": self.matched,
            "prompts_compared": self.prompts,
            "comparisons": self.comparisons,
            "tokens_compared": self.tokens,
            "compared_as_text": self.by_text,
            "differing": self.differing,
            "differing_rate_below": bound(self.prompts) if not self.differences else None,
            "differences": [d.to_json() for d in self.differences[:_SHOWN]],
        }


def bound(n: int) -> float | None:
    """Upper 95% bound on the rate of differing prompts after n without one: 3/n, at most 1."""
    return min(1.0, 3 / n) if n else None


def check(run: Run, settings: Settings) -> list[Verdict]:
    """Self-parity for each cell of the baseline, then one verdict for each pair and cell."""
    if settings.off("parity"):
        return []
    hot = {c.id for launch in run.plan.launches for c in launch.cells if c.sampling.temperature > 0}
    verdicts = []
    unstable: dict[str, set[str]] = {}
    for cell in _baseline_cells(run):
        if cell not in hot:
            verdict, differing = _self_parity(run, settings, cell)
            unstable[cell] = differing
            verdicts.append(verdict)
    for side, reference in planned_pairs(run.plan, settings):
        ours, theirs = cells_of(run, side), cells_of(run, reference)
        for cell in ours:
            if cell not in theirs:
                continue
            if cell in hot:
                verdicts.append(_sampled(side, reference, cell, settings))
                continue
            verdicts.append(
                _pair(
                    run,
                    settings,
                    (side, reference),
                    cell,
                    (ours[cell], theirs[cell]),
                    unstable.get(cell, set()),
                )
            )
    return verdicts


def compare(run: Run, found: list[Match], cell: str) -> Comparison:
    """Compare every match by token ids, by text only where one side has no ids."""
    scores = _scores(run, cell)
    usable = [(m, how) for m in found if (how := comparable(m.a, m.b)) is not None]
    differences = [
        d for m, _ in usable if (d := diverge(m.a, m.b, scores.get(m.a.prompt_id))) is not None
    ]
    return Comparison(
        len(found),
        len({(m.a.prompt_id, m.a.turn) for m, _ in usable}),
        len(usable),
        sum(min(completion_tokens(m.a) or 0, completion_tokens(m.b) or 0) for m, _ in usable),
        sum(how == "text" for _, how in usable),
        tuple(differences),
    )


def _scores(run: Run, cell: str) -> dict[str, Record]:
    """Target-only records that carry token scores. Other modes' scores are not trusted:
    engines fabricate them under speculation."""
    return {
        r.prompt_id: r
        for p in places(run)
        if p.cell.id == cell and not p.speculative
        for r in p.counted
        if "top_logprobs" in r.extras
    }


def _baseline_cells(run: Run) -> list[str]:
    return list(
        dict.fromkeys(p.cell.id for p in places(run) if p.side == run.plan.baseline and p.counted)
    )


def _self_parity(run: Run, settings: Settings, cell: str) -> tuple[Verdict, set[str]]:
    baseline = run.plan.baseline
    name = f"{baseline} against itself, {cell}"
    planned = [p for p in places(run) if p.side == baseline and p.cell.id == cell]
    evidence: dict[str, Any] = {
        "sides": [baseline],
        "cell": cell,
        "blames": [baseline],
        "launches": [p.launch.id for p in planned],
        "self": True,
    }
    if len(planned) < 2:
        sentence = "The plan has no second launch of the baseline for this cell."
        return Verdict("parity", name, "not-run", sentence, evidence, demanded=False), set()
    result = compare(run, baseline_repeats(run, cell), cell)
    evidence |= result.evidence()
    if not result.comparisons:
        sentence = "No output of a second launch could be compared."
        return Verdict("parity", name, "inconclusive", sentence, evidence), set()
    differing = {d.prompt for d in result.differences}
    if differing:
        waived = _waived(result, settings)
        sentence = (
            f"The baseline does not reproduce itself on {len(differing)} of "
            f"{plural(result.prompts, 'prompt')}. {_triage(result)}"
        )
        return Verdict(
            "parity", name, "waived" if waived else "fail", sentence, evidence
        ), differing
    sentence = f"Relaunched, the baseline gives the same tokens: {_size(result)}."
    return Verdict("parity", name, "pass", sentence, evidence), set()


def _pair(
    run: Run,
    settings: Settings,
    pair: tuple[str, str],
    cell: str,
    placed: tuple[list[Place], list[Place]],
    unstable: set[str],
) -> Verdict:
    side, reference = pair
    name = f"{side} against {reference}, {cell}"
    ours, theirs = placed
    expected = sum(len(p.records) for p in ours)
    result = compare(run, list(matches(ours, theirs)), cell)
    evidence: dict[str, Any] = {
        "sides": [side, reference],
        "cell": cell,
        "blames": [s for s in pair if s != run.plan.baseline],
        "prompts_sent": expected,
        **result.evidence(),
        "not_self_reproducible": sorted(unstable),
    }
    idle, idle_note = _idle(ours + theirs, evidence)

    def verdict(outcome: Outcome, sentence: str) -> Verdict:
        return Verdict("parity", name, outcome, sentence + idle_note, evidence)

    if not result.comparisons:
        return verdict("inconclusive", "No output of this pair could be compared.")
    differing = {d.prompt for d in result.differences}
    if differing:
        told = f"{len(differing)} of {plural(result.prompts, 'prompt')} differ. {_triage(result)}"
        if _waived(result, settings):
            return verdict("waived", f"{told} All below the campaign's stated margin.")
        if differing <= unstable:
            return verdict(
                "inconclusive",
                f"{told} The baseline does not reproduce itself on these prompts, so a "
                f"difference between modes proves nothing.",
            )
        return verdict("fail", told)
    if result.comparisons < expected:
        return verdict(
            "inconclusive",
            f"Identical where compared ({_size(result)}), but "
            f"{plural(expected - result.comparisons, 'request')} could not be compared.",
        )
    if idle:
        return verdict("inconclusive", f"Identical ({_size(result)}), which proves little:")
    return verdict("pass", f"Identical: {_size(result)}.")


def _idle(found: list[Place], evidence: dict[str, Any]) -> tuple[bool, str]:
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


def _waived(result: Comparison, settings: Settings) -> bool:
    limit = settings.number("parity", "waive_below_margin")
    if limit is None:
        return False
    return all(d.margin is not None and d.margin < limit for d in result.differences)


def _size(result: Comparison) -> str:
    rate = bound(result.prompts)
    again = f" ({result.comparisons} comparisons)" if result.comparisons > result.prompts else ""
    by = " (by text, the engine reports no ids)" if result.by_text else ""
    held = (
        f"the rate of differing prompts is below {rate:.2g} with 95% confidence"
        if rate is not None and rate < 1
        else "too few to bound the rate of differing prompts"
    )
    return f"{plural(result.prompts, 'prompt')}{again}, {result.tokens:,} tokens{by}; {held}"


def _triage(result: Comparison) -> str:
    first = min(result.differences, key=lambda d: (d.position, d.prompt))
    unit = "token" if first.compared == "ids" else "character"
    margin = (
        f"the target-only launch scores them {first.margin:.4g} nats apart ({first.closeness})"
        if first.margin is not None
        else "no scores of the target-only launch were recorded there"
    )
    return (
        f"First difference: {first.prompt}, {unit} {first.position}, "
        f"{first.token_a!r} against {first.token_b!r}; {margin}."
    )


def _sampled(side: str, reference: str, cell: str, settings: Settings) -> Verdict:
    return Verdict(
        "parity",
        f"{side} against {reference}, {cell}",
        "not-run",
        "Temperature is above 0: outputs are drawn, so byte parity says nothing.",
        {"sides": [side, reference], "cell": cell},
        demanded=settings.named("parity"),
    )
