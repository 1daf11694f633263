"""Pooled acceptance with intervals that know that steps of one prompt belong together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis.resampling import Interval
from qualify.analysis.stats import t_quantile
from qualify.records.schema import Record

LEAST_PROMPTS = 3
WINDOW = 4  # tokens; a shorter sequence comes again by chance in any text


@dataclass(frozen=True)
class Acceptance:
    """Intervals beside the pooled rates of `speculation`, and how repetitive outputs are.

    prompts: how many reported. accept_length and draft_match_rate: 95% intervals over
    prompts; None with fewer than 3. repetition: share of the outputs' 4-token sequences that
    had come before in the same output; None without token ids.
    """

    prompts: int
    accept_length: Interval | None
    draft_match_rate: Interval | None
    repetition: float | None


def acceptance_of(counted: Sequence[Record]) -> Acceptance | None:
    """None where the engine reported nothing of speculation."""
    sums: dict[tuple[str, int], list[tuple[int | None, int | None, int | None]]] = {}
    for r in counted:
        if r.speculation is not None:
            said = r.speculation
            sums.setdefault((r.prompt_id, r.turn), []).append((said.C, said.V, said.P))
    if not sums:
        return None
    length = _interval([_sum(v, 1) for v in sums.values()])
    return Acceptance(
        prompts=len(sums),
        accept_length=None if length is None else Interval(1 + length.low, 1 + length.high),
        draft_match_rate=_interval([_sum(v, 2) for v in sums.values()]),
        repetition=repetition([r.output_ids for r in counted if r.output_ids is not None]),
    )


def _sum(found: Sequence[tuple[int | None, int | None, int | None]], below: int) -> tuple[int, int]:
    """(sum of C, sum of V or P) over the requests of one prompt that reported both."""
    both = [(c, said[below]) for said in found if (c := said[0]) is not None]
    return sum(c for c, b in both if b is not None), sum(b for _, b in both if b is not None)


def _interval(clusters: Sequence[tuple[int, int]]) -> Interval | None:
    """Of sum(top) / sum(bottom), by the spread of the prompts around the pooled rate.

    The ratio estimator's linearised variance with a t quantile, df = prompts - 1 (Cochran,
    Sampling Techniques, 6.4). Kept inside what a rate can be: never below 0.
    """
    known = [(a, b) for a, b in clusters if b > 0]
    k, bottom = len(known), sum(b for _, b in known)
    if k < LEAST_PROMPTS:
        return None
    rate = sum(a for a, _ in known) / bottom
    spread = math.fsum((a - rate * b) ** 2 for a, b in known) * k / (k - 1)
    half = t_quantile(k - 1) * math.sqrt(spread) / bottom
    return Interval(max(0.0, rate - half), rate + half)


def repetition(outputs: Sequence[Sequence[int]]) -> float | None:
    """Share of 4-token sequences that stand earlier in the same output as well."""
    total = again = 0
    for ids in outputs:
        seen: set[tuple[int, ...]] = set()
        for i in range(len(ids) - WINDOW + 1):
            piece = tuple(ids[i : i + WINDOW])
            total += 1
            again += piece in seen
            seen.add(piece)
    return again / total if total else None
