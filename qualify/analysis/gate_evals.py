"""Evaluations of two runs, problem by problem: what passed before and fails now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qualify.evals.compare import mcnemar, planned
from qualify.evals.standing import score_of, standing_answers, standing_scores
from qualify.records.run import Run

SURE = 0.05


@dataclass(frozen=True)
class EvalChange:
    """loss_pct: net loss in percent of the problems. outcome: regressed, held or open."""

    where: str
    loss_pct: float
    p: float
    outcome: str
    sentence: str


def eval_changes(before: Run, after: Run, limit_pct: float) -> Iterator[EvalChange]:
    """One for each evaluation, measure and side that both runs finished on the same problems.

    Regressed: the net loss exceeds the limit and McNemar's test is sure; with few changed
    problems chance explains them, and the outcome is open.
    """
    for item, sides in planned(after.plan):
        for measure in item.measures:
            for side in sides:
                found = (
                    _passes(before, side, item.id, measure),
                    _passes(after, side, item.id, measure),
                )
                if set(found[0]) != set(item.problems) or set(found[1]) != set(item.problems):
                    continue
                lost = [p for p in item.problems if found[0][p] and not found[1][p]]
                won = [p for p in item.problems if found[1][p] and not found[0][p]]
                loss = 100 * (len(lost) - len(won)) / len(item.problems)
                p = mcnemar(len(lost), len(won))
                outcome = "held" if loss <= limit_pct else "regressed" if p < SURE else "open"
                where = f"{side}, {item.id} ({measure})"
                names = f" ({', '.join(lost[:5])})" if lost else ""
                said = (
                    f"{where}: {len(lost)} problems lost{names} and {len(won)} gained, McNemar "
                    f"p = {p:.2g} (limit {limit_pct:g}%)."
                )
                yield EvalChange(where, loss, p, outcome, said)


def _passes(run: Run, side: str, eval_id: str, measure: str) -> dict[str, bool]:
    """Problem -> passed, over the answers that were scored."""
    answers = standing_answers(run.completions).get((side, eval_id), {})
    scores = standing_scores(run.scores)
    return {
        problem: score.outcome == "pass"
        for problem, answer in answers.items()
        if answer.record.ok and (score := score_of(scores, answer, measure)) is not None
    }
