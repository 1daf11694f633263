"""Which codes came back, by the size of the prompt and the depth at which they stood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qualify.evals.nouns import Completion, Score
from qualify.evals.standing import Scores, score_of
from qualify.plan import EvalPlan


@dataclass(frozen=True)
class RecallCell:
    """Codes asked for in first turns at one size and depth, and how many of them came back.

    depth: as asked for; where a campaign leaves depths to the seed, rounded to a tenth.
    """

    eval: str
    side: str
    tokens: int
    depth: float
    asked: int
    found: int


def recall_of(
    item: EvalPlan, side: str, answers: Mapping[str, Completion], held: Scores
) -> list[RecallCell]:
    """By size, then depth; without the fresh request at the end. Empty for other kinds."""
    counts: dict[tuple[int, float], list[int]] = {}
    stated = bool(item.options.get("depths")) or item.options.get("count") == 1
    for problem in item.problems:
        answer = answers.get(problem)
        score = None if answer is None else _score(held, item, answer)
        if score is None or "needles" not in score.values:
            continue
        if score.values["role"] or score.values["turn"]:
            continue
        for needle in score.values["needles"]:
            asked = needle["asked_depth"]
            place = score.values["tokens"], asked if stated else round(asked, 1)
            cell = counts.setdefault(place, [0, 0])
            cell[0] += 1
            cell[1] += bool(needle["found"])
    return [
        RecallCell(item.id, side, tokens, depth, asked, found)
        for (tokens, depth), (asked, found) in sorted(counts.items())
    ]


def _score(held: Scores, item: EvalPlan, answer: Completion) -> Score | None:
    return score_of(held, answer, item.measures[0])
