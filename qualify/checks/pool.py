"""Integers of speculative decoding summed over requests, never rates averaged (rule 9)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qualify.checks.select import completion_tokens
from qualify.records.schema import Record, Speculation


@dataclass(frozen=True)
class Pool:
    """Sums over the requests that reported an integer; None where none of them did.

    requests: all that were looked at; reporting: those with any speculation report. Each
    rate is formed over the requests that reported both of its integers.
    """

    requests: int
    reporting: int
    V: int | None
    P: int | None
    C: int | None
    T: int | None
    W: int | None
    tokens: int
    draft_match_rate: float | None  # C/P, no bonus token
    accept_length: float | None  # 1 + C/V, bonus included
    accepted_drafts_per_step: float | None  # C/V, no bonus token
    proposed_per_step: float | None  # P/V
    survival: tuple[float, ...] | None  # share of verify steps with at least j drafts right


def pool(records: Iterable[Record]) -> Pool:
    """Pool the counted requests of one cell, or of many."""
    found = list(records)
    known = [r.speculation for r in found if r.speculation is not None]
    cp = _sums(known, "C", "P")
    cv = _sums(known, "C", "V")
    pv = _sums(known, "P", "V")
    return Pool(
        requests=len(found),
        reporting=len(known),
        V=_sum(known, "V"),
        P=_sum(known, "P"),
        C=_sum(known, "C"),
        T=_sum(known, "T"),
        W=_sum(known, "W"),
        tokens=sum(completion_tokens(r) or 0 for r in found),
        draft_match_rate=_ratio(cp),
        accept_length=None if (length := _ratio(cv)) is None else 1 + length,
        accepted_drafts_per_step=_ratio(cv),
        proposed_per_step=_ratio(pv),
        survival=_survival(known),
    )


def _sum(known: list[Speculation], name: str) -> int | None:
    values = [v for s in known if (v := getattr(s, name)) is not None]
    return sum(values) if values else None


def _sums(known: list[Speculation], top: str, bottom: str) -> tuple[int, int] | None:
    both = [
        (a, b)
        for s in known
        if (a := getattr(s, top)) is not None and (b := getattr(s, bottom)) is not None
    ]
    return (sum(a for a, _ in both), sum(b for _, b in both)) if both else None


def _ratio(sums: tuple[int, int] | None) -> float | None:
    return sums[0] / sums[1] if sums is not None and sums[1] > 0 else None


def _survival(known: list[Speculation]) -> tuple[float, ...] | None:
    """From histograms (index = correct drafts in a step): share of steps that got to j >= 1."""
    histograms = [s.histogram for s in known if s.histogram]
    steps = sum(sum(h) for h in histograms)
    if not steps:
        return None
    longest = max(len(h) for h in histograms)
    return tuple(sum(sum(h[j:]) for h in histograms) / steps for j in range(1, longest))
