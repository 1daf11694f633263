"""Throughput of the steady part of a cell, its ramp and drain apart; and goodput."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qualify.checks.select import completion_tokens, counts
from qualify.records.schema import Record

# gate -> what of a request must not exceed it
GOODPUT_GATES = ("goodput_ttft_s", "goodput_tpot_ms", "goodput_end_s")


@dataclass(frozen=True)
class Steady:
    """A closed loop's window cut in three; the sums of several launches, where pooled.

    ramp_s: first send until every request of the first wave has its first token. drain_s:
    from the moment fewer than `concurrency` requests are left until the last end. tok_s: the
    tokens that arrived between the two over that time; None where nothing lies between, or
    where events do not tell their tokens.
    """

    ramp_s: float
    window_s: float
    drain_s: float
    tokens: int | None
    tok_s: float | None


def steady_of(records: Sequence[Record], concurrency: int) -> Steady | None:
    """None at concurrency 1, for a single wave, and where a request has no end."""
    spans = [
        (r.t_start_s, r.t_start_s + end, r)
        for r in records
        if (end := r.timing.t_end_s if r.timing.t_end_s is not None else r.timing.t_last_s)
        is not None
    ]
    if concurrency < 2 or len(records) <= concurrency or len(spans) < len(records):
        return None
    spans.sort(key=lambda s: s[0])
    begin, end = spans[0][0], max(e for _, e, _ in spans)
    ramped = max(
        s + (r.timing.t_first_s if r.timing.t_first_s is not None else e - s)
        for s, e, r in spans[:concurrency]
    )
    drained = sorted(e for _, e, _ in spans)[len(spans) - concurrency]
    if drained <= ramped:
        return Steady(ramped - begin, 0.0, end - ramped, None, None)
    tokens: int | None = 0
    for start, _, record in spans:
        if not counts(record):
            continue
        for at, count in record.timing.events:
            if ramped < start + at <= drained:
                tokens = None if tokens is None or count is None else tokens + count
    window = drained - ramped
    rate = tokens / window if tokens is not None else None
    return Steady(ramped - begin, window, end - drained, tokens, rate)


def pooled_steady(found: Sequence[Steady | None]) -> Steady | None:
    """Several launches of the same cell: times and tokens summed."""
    known = [s for s in found if s is not None]
    if not known:
        return None
    window = math.fsum(s.window_s for s in known)
    told = [s.tokens for s in known if s.tokens is not None]
    tokens = sum(told) if len(told) == len(known) else None
    return Steady(
        math.fsum(s.ramp_s for s in known),
        window,
        math.fsum(s.drain_s for s in known),
        tokens,
        tokens / window if tokens is not None and window else None,
    )


@dataclass(frozen=True)
class Goodput:
    """Requests that kept every limit. share: of all that were sent, failed ones included;
    requests_per_s and tok_s: what the good ones amount to over the whole window."""

    limits: dict[str, float]
    requests: int
    good: int
    share: float
    requests_per_s: float
    tok_s: float


def goodput_of(
    records: Sequence[Record], window_s: float | None, gates: Mapping[str, float]
) -> Goodput | None:
    """None where the campaign sets no such limit, or nothing was sent."""
    limits = {name: gates[name] for name in GOODPUT_GATES if name in gates}
    if not limits or not records or not window_s:
        return None
    good = [r for r in records if counts(r) and _keeps(r, limits)]
    tokens = sum(completion_tokens(r) or 0 for r in good)
    return Goodput(
        limits,
        len(records),
        len(good),
        len(good) / len(records),
        len(good) / window_s,
        tokens / window_s,
    )


def _keeps(record: Record, limits: Mapping[str, float]) -> bool:
    timing = record.timing
    said = dict(zip(GOODPUT_GATES, (timing.ttft_s, timing.tpot_ms, timing.t_last_s), strict=True))
    return all((value := said[name]) is not None and value <= limits[name] for name in limits)
