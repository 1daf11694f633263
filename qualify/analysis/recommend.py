"""One row a measured cell: which mode, why, how sure, and what would reverse it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis import words
from qualify.analysis.outcomes import Finding
from qualify.analysis.pairs import PairResult
from qualify.analysis.standing import against
from qualify.analysis.timing import CellStats
from qualify.checks.verdict import Verdict
from qualify.plan import Plan

MIXED = "mixed or unknown"


@dataclass(frozen=True)
class Row:
    """mode None: nothing can be recommended, and `why` says so. `also` ties with it.

    settled False: the mode is a default, because no comparison could decide against it.

    evidence: the cells that it stands on. refused: side -> the checks that failed there.
    """

    workload: str
    tokens: int | None
    concurrency: int | None
    cache: str | None
    cell: str | None
    mode: str | None
    settled: bool
    also: tuple[str, ...]
    why: str
    sure: str
    reverse: str
    evidence: tuple[str, ...]
    refused: dict[str, list[str]]


def recommend(
    plan: Plan,
    cells: Sequence[CellStats],
    pairs: Sequence[PairResult],
    verdicts: Sequence[Verdict],
) -> list[Row]:
    """A row for each measured cell id in plan order, then one for mixed or unknown work."""
    by_cell: dict[str, list[CellStats]] = {}
    for stats in cells:
        if stats.purpose == "measure":
            by_cell.setdefault(stats.cell, []).append(stats)
    rows = [_row(plan, found, pairs, verdicts) for found in by_cell.values()]
    return [*rows, _mixed(plan.baseline, rows, by_cell, pairs)] if len(rows) > 1 else rows


def _row(
    plan: Plan, found: list[CellStats], pairs: Sequence[PairResult], verdicts: Sequence[Verdict]
) -> Row:
    like = found[0]
    sides = list(dict.fromkeys(s.side for s in found if s.counted))
    refused = {
        side: failed
        for side in dict.fromkeys(s.side for s in found)
        if (failed := against(verdicts, side, like.cell, like.workload, "fail"))
    }
    good = [s for s in sides if s not in refused]
    here = [p for p in pairs if p.cell == like.cell]
    baseline = plan.baseline
    rivals = {p.side: p for p in here if p.reference == baseline and p.side in good}

    def row(
        mode: str | None,
        why: str,
        sure: str,
        reverse: str,
        also: Sequence[str] = (),
        settled: bool = False,
    ) -> Row:
        denied = " ".join(
            f"{s} is not recommended here: it fails {words.listed(f)}."
            for s, f in refused.items()
            if mode is not None
        )
        return Row(
            workload=like.workload,
            tokens=like.tokens,
            concurrency=like.concurrency,
            cache=like.cache,
            cell=like.cell,
            mode=mode,
            settled=settled,
            also=tuple(also),
            why=f"{why} {denied}".strip(),
            sure=sure,
            reverse=reverse,
            evidence=(like.cell,),
            refused=refused,
        )

    if not sides:
        return row(None, "Nothing was measured here.", "not at all", "a measurement")
    if baseline not in good:
        why = (
            f"{baseline} fails {words.listed(refused[baseline])} here, and everything else is "
            f"compared with it."
            if baseline in refused
            else f"{baseline} was not measured here, so there is nothing to compare with."
        )
        return row(None, why, "not at all", "a run in which the baseline passes")
    open_checks = [
        c for s in good for c in against(verdicts, s, like.cell, like.workload, "inconclusive")
    ]
    mode, also, why, lead = _choose(baseline, good, rivals, here)
    judged = [p.decode for p in rivals.values() if p.decode is not None]
    return row(
        mode,
        why,
        words.sureness(lead, open_checks),
        words.reversal(baseline, mode, rivals),
        also,
        settled=bool(judged)
        and (mode != baseline or all(f.outcome != "not enough data" for f in judged)),
    )


def _choose(
    baseline: str, good: list[str], rivals: dict[str, PairResult], here: list[PairResult]
) -> tuple[str, list[str], str, Finding | None]:
    decided = {s: p.decode for s, p in rivals.items() if p.decode is not None}
    ahead = sorted(
        # A side that proposed nothing decoded plainly: its lead is chance.
        (s for s, f in decided.items() if f.outcome == "ahead" and rivals[s].proposed != 0),
        key=lambda s: -decided[s].ratio,
    )
    if ahead:
        best = ahead[0]
        level = [s for s in ahead[1:] if _tied(best, s, here)]
        return best, level, words.why_ahead(rivals[best]), decided[best]
    tied = [s for s, f in decided.items() if f.outcome == "tied"]
    if tied:
        why = " ".join(words.why_tied(rivals[s]) for s in tied)
        return baseline, tied, why, decided[tied[0]]
    if not decided:
        alone = len(good) == 1
        why = (
            f"{baseline} is the only mode that was measured here without a failed check."
            if alone
            else "No pair could be compared here."
        )
        return baseline, [], why, None
    why = " ".join(words.why_not(rivals[s]) for s in decided)
    unsettled = [f for f in decided.values() if f.outcome == "not enough data"]
    return baseline, [], why, (unsettled or list(decided.values()))[0]


def _tied(one: str, other: str, here: list[PairResult]) -> bool:
    return any(
        {p.side, p.reference} == {one, other} and p.decode and p.decode.outcome == "tied"
        for p in here
    )


def _mixed(
    baseline: str,
    rows: list[Row],
    by_cell: dict[str, list[CellStats]],
    pairs: Sequence[PairResult],
) -> Row:
    """Least regret: the side whose worst loss against the best one, over all cells, is least.

    Only decided differences count; a tie or too little data is no loss. A side must have
    been measured in every cell and must have failed nowhere.
    """
    failed = {s for r in rows for s in r.refused}
    sides = [
        s
        for s in dict.fromkeys(c.side for found in by_cell.values() for c in found)
        if s not in failed
        and all(any(c.side == s and c.counted for c in found) for found in by_cell.values())
    ]
    lead = {
        (p.side, p.cell): p.decode.ratio
        for p in pairs
        if p.reference == baseline
        and p.decode
        and (p.decode.outcome == "behind" or (p.decode.outcome == "ahead" and p.proposed != 0))
    }
    losses: dict[str, tuple[float, str]] = {}
    for side in sides:
        losses[side] = max(
            (
                max(lead.get((s, cell), 1.0) for s in sides) / lead.get((side, cell), 1.0),
                cell,
            )
            for cell in by_cell
        )
    refused = {s: sorted({c for r in rows for c in r.refused.get(s, [])}) for s in failed}
    evidence = tuple(by_cell)

    def row(mode: str | None, why: str, sure: str, reverse: str) -> Row:
        return Row(
            workload=MIXED,
            tokens=None,
            concurrency=None,
            cache=None,
            cell=None,
            mode=mode,
            settled=bool(lead),
            also=(),
            why=why,
            sure=sure,
            reverse=reverse,
            evidence=evidence,
            refused=refused,
        )

    if baseline not in losses:
        return row(
            None,
            f"{baseline} fails a check or was not measured in every cell.",
            "not at all",
            "a run in which the baseline passes",
        )
    best = min(losses, key=lambda s: (losses[s][0], s != baseline))
    reverse = words.regret_reversal(baseline, best, lead, refused)
    why = words.why_regret(best, losses, refused, baseline, lead)
    return row(best, why, words.SAMPLE_ONLY, reverse)
