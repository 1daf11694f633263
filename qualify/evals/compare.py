"""From answers and scores to figures: pass@1 with its interval, and what changed between modes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from qualify.evals.nouns import Completion, Score
from qualify.evals.recall import RecallCell, recall_of
from qualify.evals.speed import EvalSpeed, speed_of
from qualify.evals.standing import Answers, Scores, score_of, standing_answers, standing_scores
from qualify.plan import EvalPlan, Plan

CONFIDENCE = 0.95


@dataclass(frozen=True)
class EvalResult:
    """One evaluation in one mode by one measure. Without a whole set of scored answers
    `passed` and what follows from it are None: a part is not a smaller number.

    pass_1: passed / problems, one answer each; low and high: Wilson's interval at 95%.
    cut: answers that reached the token limit. causes: why answers failed.
    """

    eval: str
    measure: str
    side: str
    problems: int
    subset: str | None
    answered: int
    scored: int
    passed: int | None
    pass_1: float | None
    low: float | None
    high: float | None
    cut: int
    causes: dict[str, int]
    unfinished: str | None  # why it does not count


@dataclass(frozen=True)
class Change:
    """One problem whose outcome differs between the reference and a side."""

    problem: str
    cause: str | None  # of the side that failed
    detail: str | None
    identical: bool  # the same bytes, judged differently: a fault of the judging
    reference_sha256: str | None
    side_sha256: str | None


@dataclass(frozen=True)
class EvalPair:
    """A mode held against the baseline, problem by problem.

    regressions passed in the reference and fail in the side, gains the other way round.
    p_value: McNemar's exact test, two-sided: how likely a split of the changed problems at
    least this uneven is when neither mode is better. identical: answers of the same bytes.
    """

    eval: str
    measure: str
    side: str
    reference: str
    problems: int
    both_pass: int
    both_fail: int
    regressions: tuple[Change, ...]
    gains: tuple[Change, ...]
    p_value: float
    identical: int


@dataclass(frozen=True)
class Evaluations:
    """Everything that the evaluations of a run came to, in plan order."""

    results: tuple[EvalResult, ...]
    pairs: tuple[EvalPair, ...]
    speed: tuple[EvalSpeed, ...] = ()
    recall: tuple[RecallCell, ...] = ()


def wilson(passed: int, n: int) -> tuple[float, float]:
    """Wilson's score interval at 95% (Wilson 1927); n > 0."""
    from scipy.stats import binomtest

    interval = binomtest(passed, n).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar(regressions: int, gains: int) -> float:
    """Exact two-sided p: the changed problems as fair coin throws. 1.0 when none changed."""
    from scipy.stats import binomtest

    changed = regressions + gains
    return float(binomtest(regressions, changed, 0.5).pvalue) if changed else 1.0


def evaluate(plan: Plan, completions: Iterable[Completion], scores: Iterable[Score]) -> Evaluations:
    answers, held = standing_answers(completions), standing_scores(scores)
    results = [
        _result(item, side, measure, answers.get((side, item.id), {}), held)
        for item, sides in planned(plan)
        for measure in item.measures
        for side in sides
    ]
    finished = {(r.eval, r.measure, r.side) for r in results if r.unfinished is None}
    pairs = [
        _pair(item, measure, side, plan.baseline, answers, held)
        for item, sides in planned(plan)
        for measure in item.measures
        for side in sides
        if side != plan.baseline
        and {(item.id, measure, side), (item.id, measure, plan.baseline)} <= finished
    ]
    speed = [
        speed_of(
            item,
            side,
            plan.baseline,
            answers.get((plan.baseline, item.id), {}),
            answers.get((side, item.id), {}),
        )
        for item, sides in planned(plan)
        for side in sides
        if side != plan.baseline
        and {(item.id, item.measures[0], s) for s in (side, plan.baseline)} <= finished
    ]
    recall = [
        cell
        for item, sides in planned(plan)
        for side in sides
        if (item.id, item.measures[0], side) in finished
        for cell in recall_of(item, side, answers.get((side, item.id), {}), held)
    ]
    return Evaluations(tuple(results), tuple(pairs), tuple(speed), tuple(recall))


def planned(plan: Plan) -> Iterator[tuple[EvalPlan, list[str]]]:
    """Each evaluation with the sides that run it, the baseline first."""
    items = {item.id: item for launch in plan.launches for item in launch.evals}
    for item in items.values():
        sides = [launch.side.name for launch in plan.launches if item in launch.evals]
        yield item, sorted(sides, key=lambda s: s != plan.baseline)


def _result(
    item: EvalPlan, side: str, measure: str, answers: Mapping[str, Completion], held: Scores
) -> EvalResult:
    n = len(item.problems)
    good = [answers[p] for p in item.problems if p in answers and answers[p].record.ok]
    found = [s for c in good if (s := score_of(held, c, measure)) is not None]
    unfinished = _unfinished(n, good, found, answers)
    passed = low = high = None
    if unfinished is None:
        passed = sum(s.outcome == "pass" for s in found)
        low, high = wilson(passed, n)
    causes = Counter(s.cause or "failed" for s in found if s.outcome == "fail")
    return EvalResult(
        eval=item.id,
        measure=measure,
        side=side,
        problems=n,
        subset=item.subset,
        answered=len(good),
        scored=len(found),
        passed=passed,
        pass_1=None if passed is None else passed / n,
        low=low,
        high=high,
        cut=sum(c.record.finish_reason == "length" for c in good),
        causes=dict(sorted(causes.items())),
        unfinished=unfinished,
    )


def _unfinished(
    n: int, good: list[Completion], found: list[Score], answers: Mapping[str, Completion]
) -> str | None:
    if len(good) < n:
        failures = [c.record.failure for c in answers.values() if c.record.failure is not None]
        why = f" (last: {failures[-1].cause}: {failures[-1].message})" if failures else ""
        return f"{len(good)} of {n} problems have an answer{why}"
    if len({c.basis for c in good}) > 1:
        return "its answers come from different engines, checkpoints or settings"
    if len(found) < n:
        return f"{len(found)} of {n} answers are scored"
    if len({s.scorer for s in found}) > 1:
        return "its answers were scored by different tests or sandboxes"
    return None


def _pair(
    item: EvalPlan, measure: str, side: str, reference: str, answers: Answers, held: Scores
) -> EvalPair:
    base, other = answers[reference, item.id], answers[side, item.id]
    regressions: list[Change] = []
    gains: list[Change] = []
    both_pass = both_fail = identical = 0
    for problem in item.problems:
        a, b = base[problem], other[problem]
        same = a.record.output_sha256 == b.record.output_sha256
        identical += same
        score_a, score_b = score_of(held, a, measure), score_of(held, b, measure)
        assert score_a is not None
        assert score_b is not None
        if score_a.outcome == score_b.outcome:
            both_pass += score_a.outcome == "pass"
            both_fail += score_a.outcome == "fail"
            continue
        lost = score_b if score_a.outcome == "pass" else score_a
        change = Change(
            problem,
            lost.cause,
            lost.detail,
            same,
            a.record.output_sha256,
            b.record.output_sha256,
        )
        (regressions if lost is score_b else gains).append(change)
    return EvalPair(
        eval=item.id,
        measure=measure,
        side=side,
        reference=reference,
        problems=len(item.problems),
        both_pass=both_pass,
        both_fail=both_fail,
        regressions=tuple(regressions),
        gains=tuple(gains),
        p_value=mcnemar(len(regressions), len(gains)),
        identical=identical,
    )
