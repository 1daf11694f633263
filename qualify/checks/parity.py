"""Byte parity: the baseline against itself first, then every planned pair (rule 8)."""

from __future__ import annotations

from typing import Any

from qualify.checks import staggered
from qualify.checks.comparison import compare, size_of, triage_of, waived
from qualify.checks.idle import idle_drafters
from qualify.checks.margins import Margins, margins_of
from qualify.checks.pairing import baseline_repeats, cells_of, matches, planned_pairs
from qualify.checks.select import Place, places, plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.records.run import Run


def check(run: Run, settings: Settings) -> list[Verdict]:
    """Self-parity for each cell of the baseline, one verdict for each pair and cell, and the
    same for requests with staggered arrivals where the campaign asks for those."""
    if settings.off("parity"):
        return []
    hot = {c.id for launch in run.plan.launches for c in launch.cells if c.sampling.temperature > 0}
    margins = margins_of(run)
    verdicts = []
    unstable: dict[str, set[str]] = {}
    for cell in _baseline_cells(run):
        if cell not in hot:
            verdict, differing = _self_parity(run, settings, cell, margins)
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
                    margins,
                )
            )
    return [*verdicts, *staggered.check(run, settings)]


def _baseline_cells(run: Run) -> list[str]:
    return list(
        dict.fromkeys(p.cell.id for p in places(run) if p.side == run.plan.baseline and p.counted)
    )


def _self_parity(
    run: Run, settings: Settings, cell: str, margins: Margins
) -> tuple[Verdict, set[str]]:
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
    result = compare(baseline_repeats(run, cell), margins)
    evidence |= result.evidence()
    if not result.comparisons:
        sentence = "No output of a second launch could be compared."
        return Verdict("parity", name, "inconclusive", sentence, evidence), set()
    differing = {d.prompt for d in result.differences}
    if differing:
        passed_over = waived(result, settings)
        sentence = (
            f"The baseline does not reproduce itself on {len(differing)} of "
            f"{plural(result.prompts, 'prompt')}. {triage_of(result)}"
        )
        return Verdict(
            "parity", name, "waived" if passed_over else "fail", sentence, evidence
        ), differing
    sentence = f"Relaunched, the baseline gives the same tokens: {size_of(result)}."
    return Verdict("parity", name, "pass", sentence, evidence), set()


def _pair(
    run: Run,
    settings: Settings,
    pair: tuple[str, str],
    cell: str,
    placed: tuple[list[Place], list[Place]],
    unstable: set[str],
    margins: Margins,
) -> Verdict:
    side, reference = pair
    name = f"{side} against {reference}, {cell}"
    ours, theirs = placed
    expected = sum(len(p.records) for p in ours)
    result = compare(list(matches(ours, theirs)), margins)
    evidence: dict[str, Any] = {
        "sides": [side, reference],
        "cell": cell,
        "blames": [s for s in pair if s != run.plan.baseline],
        "prompts_sent": expected,
        **result.evidence(),
        "not_self_reproducible": sorted(unstable),
    }
    idle, idle_note = idle_drafters(ours + theirs, evidence)

    def verdict(outcome: Outcome, sentence: str) -> Verdict:
        return Verdict("parity", name, outcome, sentence + idle_note, evidence)

    if not result.comparisons:
        return verdict("inconclusive", "No output of this pair could be compared.")
    differing = {d.prompt for d in result.differences}
    if differing:
        told = f"{len(differing)} of {plural(result.prompts, 'prompt')} differ. {triage_of(result)}"
        if waived(result, settings):
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
            f"Identical where compared ({size_of(result)}), but "
            f"{plural(expected - result.comparisons, 'request')} could not be compared.",
        )
    if idle:
        return verdict("inconclusive", f"Identical ({size_of(result)}), which proves little:")
    return verdict("pass", f"Identical: {size_of(result)}.")


def _sampled(side: str, reference: str, cell: str, settings: Settings) -> Verdict:
    return Verdict(
        "parity",
        f"{side} against {reference}, {cell}",
        "not-run",
        "Temperature is above 0: outputs are drawn, so byte parity says nothing.",
        {"sides": [side, reference], "cell": cell},
        demanded=settings.named("parity"),
    )
