"""What a side must commit at its own cycle time to tie with its reference (rule 10)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis.speculation import (
    Steps,
    break_even_accept_length,
    break_even_tokens_per_step,
)
from qualify.checks.pairing import Match
from qualify.checks.pool import pool


@dataclass(frozen=True)
class BreakEven:
    """What the side must commit to tie with the reference at its own cycle time, beside
    what it did commit. Accept length counts the bonus token; None without verify steps."""

    needed_tokens_per_step: float
    reached_tokens_per_step: float
    needed_accept_length: float | None
    reached_accept_length: float | None
    possible_accept_length: float | None  # 1 + P/V: every proposed draft right


def break_even(usable: Sequence[Match], both: Sequence[tuple[Steps, Steps]]) -> BreakEven | None:
    """Pooled over the compared prompts of both sides."""
    steps = sum(a.count for a, _ in both)
    reference_tokens = sum(b.tokens for _, b in both)
    if not steps or not reference_tokens:
        return None
    cycle_s = math.fsum(a.duration_s for a, _ in both) / steps
    tpot_s = math.fsum(b.duration_s for _, b in both) / reference_tokens
    needed = break_even_tokens_per_step(cycle_s, tpot_s)
    total = pool(m.a for m in usable)
    length = (
        break_even_accept_length(needed, total.V, total.T or 0) if total.V is not None else None
    )
    return BreakEven(
        needed,
        sum(a.tokens for a, _ in both) / steps,
        length,
        total.accept_length,
        None if total.proposed_per_step is None else 1 + total.proposed_per_step,
    )
