"""Evaluations as rows: a mode's result beside its comparison with the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from qualify.evals.compare import EvalPair, EvalResult, Evaluations


@dataclass(frozen=True)
class QualityRow:
    """pair is None for the baseline, and where there is nothing to compare."""

    result: EvalResult
    pair: EvalPair | None


def quality_rows(found: Evaluations) -> list[QualityRow]:
    """One row an evaluation, measure and mode, in plan order."""
    pairs = {(p.eval, p.measure, p.side): p for p in found.pairs}
    return [QualityRow(r, pairs.get((r.eval, r.measure, r.side))) for r in found.results]


def changes_in_words(pair: EvalPair, most: int = 8) -> str:
    """`-HumanEval/3 (timeout), +HumanEval/7`: what was lost and gained; empty for nothing."""
    said = [f"-{c.problem}" + (f" ({c.cause})" if c.cause else "") for c in pair.regressions]
    said += [f"+{c.problem}" for c in pair.gains]
    more = f" and {len(said) - most} more" if len(said) > most else ""
    return ", ".join(said[:most]) + more
