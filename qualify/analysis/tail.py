"""Medians and tails of one side in one cell, with intervals, and the worst request by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qualify.analysis.resampling import Interval, quantile_intervals
from qualify.analysis.stats import QUANTILES, quantile, supported
from qualify.records.schema import Record

Measure = Callable[[Record], float | None]


@dataclass(frozen=True)
class Worst:
    """The request with the largest value: where to look it up in records.jsonl."""

    value: float
    launch: str
    prompt_id: str
    turn: int


@dataclass(frozen=True)
class Tail:
    """quantile: the furthest one that n supports (0.9, 0.95 or 0.99), None under 10 values.

    value is that quantile, over_median how far out it lies. Intervals are bootstrapped by
    prompt; None with fewer than 5 prompts.
    """

    n: int
    median_interval: Interval | None
    quantile: float | None
    value: float | None
    interval: Interval | None
    over_median: float | None
    worst: Worst | None


def tail_of(records: Sequence[Record], measure: Measure) -> Tail:
    known = [(v, r) for r in records if (v := measure(r)) is not None]
    values = [v for v, _ in known]
    by_prompt: dict[object, list[float]] = {}
    for value, record in known:
        by_prompt.setdefault((record.prompt_id, record.turn), []).append(value)
    reach = max((q for q in QUANTILES if supported(len(values), q)), default=None)
    wanted = [0.5] if reach is None else [0.5, reach]
    middle, *far = quantile_intervals(by_prompt, wanted)
    median = quantile(values, 0.5)
    far_out = None if reach is None else quantile(values, reach)
    return Tail(
        n=len(values),
        median_interval=middle,
        quantile=reach,
        value=far_out,
        interval=far[0] if far else None,
        over_median=far_out / median if far_out is not None and median else None,
        worst=_worst(known),
    )


def _worst(known: list[tuple[float, Record]]) -> Worst | None:
    if not known:
        return None
    value, record = max(known, key=lambda k: k[0])
    return Worst(value, record.launch, record.prompt_id, record.turn)
