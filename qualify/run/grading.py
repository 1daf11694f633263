"""Scoring, after every engine has stopped: answers that have no score by this scorer yet."""

from __future__ import annotations

import time
from collections.abc import Callable

from qualify.errors import QualifyError
from qualify.evals.nouns import Completion, Problem, Score
from qualify.evals.planned import Bench
from qualify.evals.standing import score_of, standing_answers, standing_scores
from qualify.plan import EvalPlan, Plan
from qualify.records.store import EVALS, SCORES, Store, read_lines
from qualify.run.events import SCORE, CellEnded, CellStarted, Note, Watcher


def grade_all(
    store: Store, plan: Plan, bench: Bench, watch: Watcher, stopped: Callable[[], bool]
) -> None:
    """Score each evaluation of each side; what cannot be scored is said and stays open.

    Idempotent: an answer with a score by the same scorer is passed over, so an interrupted
    scoring goes on where it was.
    """
    damage: list[str] = []
    answers = standing_answers(read_lines(Completion, store.folder / EVALS, damage))
    scores = standing_scores(read_lines(Score, store.folder / SCORES, damage))
    for launch in plan.launches:
        for item in launch.evals:
            if stopped():
                return
            mine = answers.get((launch.side.name, item.id), {})
            _grade(store, bench, item, launch.side.name, mine, scores, watch, stopped)


def _grade(
    store: Store,
    bench: Bench,
    item: EvalPlan,
    side: str,
    answers: dict[str, Completion],
    scores: dict[tuple[str, str, str], Score],
    watch: Watcher,
    stopped: Callable[[], bool],
) -> None:
    kind = bench.kinds[item.id]
    scorer = kind.scorer(item)
    work: list[tuple[Problem, Completion]] = []
    for problem in bench.sets[item.id].problems:
        answer = answers.get(problem.id)
        if answer is None or not answer.record.ok:
            continue
        held = [score_of(scores, answer, measure) for measure in item.measures]
        if any(s is None or s.scorer != scorer for s in held):
            work.append((problem, answer))
    if not work:
        return
    began = time.monotonic()
    name = f"{SCORE}{item.id}"
    watch(CellStarted(side, name, len(work)))
    done, reason = 0, None
    try:
        for _, made in kind.grade(item, work):
            for score in made:
                store.append(score)
            done += 1
            if stopped():
                reason = "interrupted"
                break
    except QualifyError as error:
        reason = f"{error.message} {error.remedy}".strip()
        watch(Note(f"{item.id} of {side} is not scored: {reason}"))
    status = "finished" if reason is None else "failed"
    watch(CellEnded(side, name, status, reason, done, len(work), time.monotonic() - began))
