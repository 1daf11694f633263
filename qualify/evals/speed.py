"""How fast a mode answers the problems of an evaluation, beside the baseline, prompt by prompt.

Decode and wall are kept apart, and so are the aggregate (all time over all time, in which long
answers weigh more) and the prompts' own ratios. Only answers of equal length are compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from qualify.evals.nouns import Completion
from qualify.plan import EvalPlan
from qualify.records.schema import Record

LEAST_DECODED = 3  # tokens after the first event, as for the cells of a campaign
LEAST_TPOT_MS = 0.02


@dataclass(frozen=True)
class Spread:
    """Ratios of prompts: their geometric mean, the least and the most."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class PromptSpeed:
    """One problem: reference / side, above 1 the side is faster. accept_length = 1 + C/V of
    the side (bonus included), None where it reports no verify steps."""

    problem: str
    output_tokens: int
    decode: float
    wall: float
    accept_length: float | None


@dataclass(frozen=True)
class EvalSpeed:
    """A side beside the reference over the problems whose answers are of equal length.

    aggregate_decode: the reference's time per token over the side's, each of all prompts
    together; aggregate_wall: the sum of times to the last token. decode, wall: of the prompts.
    left_out: why problems were not compared. refused: why none was.
    """

    eval: str
    side: str
    reference: str
    compared: int
    left_out: dict[str, int]
    refused: str | None
    aggregate_decode: float | None
    aggregate_wall: float | None
    decode: Spread | None
    wall: Spread | None
    accept_length: float | None
    accept: Spread | None  # accept lengths of the prompts: their arithmetic mean, least, most
    prompts: tuple[PromptSpeed, ...]


def speed_of(
    item: EvalPlan,
    side: str,
    reference: str,
    base: Mapping[str, Completion],
    other: Mapping[str, Completion],
) -> EvalSpeed:
    if item.concurrency > 1:
        text = f"{item.concurrency} requests were in flight: their times are not their own"
        return EvalSpeed(
            item.id, side, reference, 0, {}, text, None, None, None, None, None, None, ()
        )
    kept: list[tuple[str, Record, Record]] = []
    left: Counter[str] = Counter()
    for problem in item.problems:
        a, b = base.get(problem), other.get(problem)
        why = _why_not(a, b)
        if why is not None:
            left[why] += 1
        elif a is not None and b is not None:
            kept.append((problem, a.record, b.record))
    prompts = tuple(
        PromptSpeed(
            problem,
            b.usage.completion_tokens or 0,
            _tpot(a) / _tpot(b),
            _last(a) / _last(b),
            _accept_length([b]),
        )
        for problem, a, b in kept
    )
    accepted = [p.accept_length for p in prompts if p.accept_length is not None]
    return EvalSpeed(
        eval=item.id,
        side=side,
        reference=reference,
        compared=len(kept),
        left_out=dict(sorted(left.items())),
        refused=None,
        aggregate_decode=(
            _pooled([a for _, a, _ in kept]) / _pooled([b for _, _, b in kept]) if kept else None
        ),
        aggregate_wall=(
            sum(_last(a) for _, a, _ in kept) / sum(_last(b) for _, _, b in kept) if kept else None
        ),
        decode=_spread([p.decode for p in prompts]),
        wall=_spread([p.wall for p in prompts]),
        accept_length=_accept_length([b for _, _, b in kept]),
        accept=(
            Spread(sum(accepted) / len(accepted), min(accepted), max(accepted))
            if accepted
            else None
        ),
        prompts=prompts,
    )


def _why_not(a: Completion | None, b: Completion | None) -> str | None:
    if a is None or b is None or not (a.record.ok and b.record.ok):
        return "no answer"
    if a.record.usage.completion_tokens != b.record.usage.completion_tokens:
        return "unequal lengths"
    return None if _sound(a.record) and _sound(b.record) else "too few tokens to time"


def _sound(record: Record) -> bool:
    timing, n = record.timing, record.usage.completion_tokens
    return (
        n is not None
        and timing.n_first is not None
        and timing.tpot_ms is not None
        and timing.t_last_s is not None
        and n - timing.n_first >= LEAST_DECODED
        and timing.tpot_ms >= LEAST_TPOT_MS
    )


def _tpot(record: Record) -> float:
    assert record.timing.tpot_ms is not None
    return record.timing.tpot_ms


def _last(record: Record) -> float:
    assert record.timing.t_last_s is not None
    return record.timing.t_last_s


def _pooled(records: list[Record]) -> float:
    """Decode seconds a token of all records together."""
    seconds = tokens = 0.0
    for record in records:
        after = (record.usage.completion_tokens or 0) - (record.timing.n_first or 0)
        seconds += _tpot(record) * after
        tokens += after
    return seconds / tokens


def _spread(ratios: list[float]) -> Spread | None:
    if not ratios:
        return None
    mean = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
    return Spread(mean, min(ratios), max(ratios))


def _accept_length(records: list[Record]) -> float | None:
    steps = correct = 0
    for record in records:
        counts = record.speculation
        if counts is not None and counts.V is not None and counts.C is not None:
            steps += counts.V
            correct += counts.C
    return 1 + correct / steps if steps else None
