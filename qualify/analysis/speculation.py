"""The break-even between cycle time and tokens per step, as rule 10 defines them."""

from __future__ import annotations

from qualify.checks.steps import Cycle, Steps, pooled_cycle, steps_of

__all__ = [
    "Cycle",
    "Steps",
    "break_even_accept_length",
    "break_even_tokens_per_step",
    "pooled_cycle",
    "steps_of",
]


def break_even_tokens_per_step(cycle_ms: float, reference_tpot_ms: float) -> float:
    """Tokens a step must commit, at this cycle time, to tie with the reference's TPOT."""
    return cycle_ms / reference_tpot_ms


def break_even_accept_length(needed: float, v: int, t: int) -> float | None:
    """The accept length that gives `needed` tokens per step when t of the v + t steps
    draft nothing: (needed * (v + t) - t) / v.

    None without verify steps, and where no accept length could: below 1 the side would tie
    with nothing accepted at all, which plain steps decide and drafts do not.
    """
    if v <= 0:
        return None
    length = (needed * (v + t) - t) / v
    return length if length >= 1 else None
