"""Which answers and scores count, out of everything that was written down."""

from __future__ import annotations

from collections.abc import Iterable

from qualify.evals.nouns import Completion, Score

Answers = dict[tuple[str, str], dict[str, Completion]]  # (side, eval) -> problem -> its answer
Scores = dict[tuple[str, str, str], Score]  # (key, output sha256, measure) -> its last score


def standing_answers(completions: Iterable[Completion]) -> Answers:
    """The last answer that succeeded, else the last failure; sides are kept apart."""
    found: Answers = {}
    for completion in completions:
        mine = found.setdefault((completion.side, completion.eval), {})
        held = mine.get(completion.problem)
        if completion.record.ok or held is None or not held.record.ok:
            mine[completion.problem] = completion
    return found


def standing_scores(scores: Iterable[Score]) -> Scores:
    """The last score of each answer and measure: a new scorer's follows the old one's."""
    return {(s.key, s.output_sha256, s.measure): s for s in scores}


def score_of(scores: Scores, completion: Completion, measure: str) -> Score | None:
    """None: not scored (yet). A score of another text under the same key does not count."""
    return scores.get((completion.key, completion.record.output_sha256 or "", measure))
