"""TPOT before a flush and after it: median and tail, over single steps.

A graph that was torn down and captured again answers right and is slower, mostly in its tail.
One slow moment of the machine is none: what is slow after the flush has to be slow again in the
request after the idle gap, which follows another flush.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from qualify.checks.probed import Probed
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome
from qualify.records.schema import Record

MEDIAN_RATIO, TAIL_RATIO = 1.25, 3.0
LEAST_STEPS = 16


def judge(one: Probed, settings: Settings) -> Iterator[tuple[str, Outcome, str]]:
    """(part, outcome, words); nothing where nothing was streamed."""
    before = steps_ms(one.requests("before"))
    after = steps_ms(one.requests("after"))
    again = steps_ms(one.requests("idle"))
    if min(len(before), len(after)) < LEAST_STEPS:
        return
    for name, share, key, usual in (
        ("median TPOT after the flush", 0.5, "median_ratio", MEDIAN_RATIO),
        ("p99 TPOT after the flush", 0.99, "tail_ratio", TAIL_RATIO),
    ):
        limit = settings.number("lifecycle", key) or usual
        was, now = quantile(before, share), quantile(after, share)
        later = quantile(again, share) if len(again) >= LEAST_STEPS else None
        said = f"{now:.3g} ms, {was:.3g} before it ({now / was:.2f}x, allowed {limit:g}x)"
        if now <= limit * was:
            yield name, "pass", said
        elif later is None or later > limit * was:
            yield name, "fail", said
        else:
            yield name, "pass", f"{said}; {later:.3g} after the next flush, so it was a moment"


def steps_ms(records: Sequence[Record]) -> list[float]:
    """Milliseconds a token of every step between two token events of one stream."""
    found = []
    for record in records:
        for (t0, _), (t1, tokens) in itertools.pairwise(record.timing.events):
            if tokens and t1 > t0:
                found.append((t1 - t0) / tokens * 1e3)
    return sorted(found)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between the two nearest of an ordered sequence."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
