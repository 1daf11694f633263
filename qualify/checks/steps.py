"""Target steps of a request and their time: rule 10's cycle, with what it was counted from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from qualify.checks.select import completion_tokens
from qualify.records.schema import Record


@dataclass(frozen=True)
class Steps:
    """One request's decode, seen as target steps after the first token event.

    count = V + T without the steps before t_first; `how` says where V + T came from:
    reported, identity (N - N0 - C + W), or plain (one token a step).
    """

    count: int
    tokens: int
    duration_s: float
    how: str

    @property
    def cycle_s(self) -> float:
        return self.duration_s / self.count

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.count


def steps_of(record: Record, *, speculative: bool) -> Steps | None:
    """The steps of one request; without speculation each token is one.

    None where the engine's counts do not tell how many there were.
    """
    n, timing = completion_tokens(record), record.timing
    if n is None or timing.n_first is None or timing.t_first_s is None or timing.t_last_s is None:
        return None
    tokens, duration = n - timing.n_first, timing.t_last_s - timing.t_first_s
    if tokens <= 0 or duration <= 0:
        return None
    if not speculative:
        return Steps(tokens, tokens, duration, "plain")
    spec = record.speculation
    if spec is None:
        return None
    first = 1 if spec.N0 is None else spec.N0
    if spec.V is not None and spec.T is not None:
        total, how = spec.V + spec.T, "reported"
    elif spec.C is not None:
        total, how = n - first - spec.C + (spec.W or 0), "identity"
    elif spec.P == 0:
        total, how = n - first, "plain"
    else:
        return None
    # A first event with more than the prefill's own token brought one step's tokens along.
    count = total - (1 if timing.n_first > first else 0)
    return Steps(count, tokens, duration, how) if count > 0 else None


@dataclass(frozen=True)
class Cycle:
    """Steps pooled over requests: total time over total steps, never a mean of rates."""

    requests: int
    steps: int
    cycle_ms: float
    tokens_per_step: float
    how: tuple[str, ...]


def pooled_cycle(records: Iterable[Record], *, speculative: bool) -> Cycle | None:
    known = [s for r in records if (s := steps_of(r, speculative=speculative)) is not None]
    steps = sum(s.count for s in known)
    if not steps:
        return None
    return Cycle(
        len(known),
        steps,
        math.fsum(s.duration_s for s in known) / steps * 1e3,
        sum(s.tokens for s in known) / steps,
        tuple(sorted({s.how for s in known})),
    )
