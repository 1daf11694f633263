"""Change points of a series of runs: where did a figure step, and by how much?

Circular binary segmentation (Olshen et al. 2004) on the log of the figure: the stretch whose mean
differs most from the rest (at least ``LEAST`` runs in either) counts when no more than ``LEVEL`` of
seeded shuffles of the same values show as large a difference anywhere. So the noise is the series'
own, no distribution is assumed, looking at every place costs nothing in false alarms, and a fault
that came and went is found as well as one that stayed. The parts are then searched again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

LEAST = 3
LEVEL = 0.01
SHUFFLES = 199

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """From value ``index`` on the figure is ``ratio`` times what it was in the part before.
    ``p``: share of shuffles that look as large."""

    index: int
    ratio: float
    p: float


def changes(values: Sequence[float], seed: int = 0) -> list[Change]:
    """Change points of positive ``values`` in order, by index; none in fewer than 6.

    Raises ValueError for a value that is not above zero.
    """
    if any(not (v > 0 and math.isfinite(v)) for v in values):
        raise ValueError("a figure must be above zero")
    logs = np.log(np.asarray(values, dtype=float))
    edges = sorted(_search(logs, 0, np.random.default_rng(seed)).items())
    bounds = [0, *(at for at, _ in edges), len(logs)]
    levels = [float(np.median(logs[a:b])) for a, b in pairwise(bounds)]
    steps = [math.exp(after - before) for before, after in pairwise(levels)]
    return [Change(at, ratio, p) for (at, p), ratio in zip(edges, steps, strict=True)]


def _search(logs: Floats, offset: int, random: np.random.Generator) -> dict[int, float]:
    """Edge -> p, of this part and of what it falls into."""
    if len(logs) < 2 * LEAST:
        return {}
    start, stop = _stretches(len(logs))
    score = _scores(logs[None, :], start, stop)[0]
    best = int(np.argmax(score))
    shuffled = random.permuted(np.tile(logs, (SHUFFLES, 1)), axis=1)
    as_large = int((_scores(shuffled, start, stop).max(1) >= score[best]).sum())
    p = (1 + as_large) / (1 + SHUFFLES)
    if p > LEVEL:
        return {}
    edges = [int(e) for e in (start[best], stop[best]) if 0 < e < len(logs)]
    found = {offset + edge: p for edge in edges}
    for begin, end in pairwise([0, *edges, len(logs)]):
        found |= _search(logs[begin:end], offset + begin, random)
    return found


def _stretches(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every [start, stop) of ``LEAST`` or more that leaves nothing or ``LEAST`` on each side."""
    start, stop = np.triu_indices(count + 1, LEAST)
    whole = (start == 0) & (stop == count)
    left = (start == 0) | (start >= LEAST)
    right = (stop == count) | (count - stop >= LEAST)
    kept = left & right & ~whole
    return start[kept].astype(np.int64), stop[kept].astype(np.int64)


def _scores(rows: Floats, start: NDArray[np.int64], stop: NDArray[np.int64]) -> Floats:
    """|t| of every stretch of every row against the rest of it: [rows, stretches]."""
    rows = rows - rows.mean(1, keepdims=True)  # or the squares below would cancel
    count = rows.shape[1]
    sums = np.concatenate((np.zeros((len(rows), 1)), np.cumsum(rows, 1)), 1)
    inside = sums[:, stop] - sums[:, start]  # what is outside sums to the opposite
    size = (stop - start).astype(float)
    between = inside**2 * (1 / size + 1 / (count - size))
    total = (rows**2).sum(1, keepdims=True)
    # A floor keeps two flat halves from dividing by zero.
    within = np.maximum(total - between, 1e-12 * count) / (count - 2)
    found: Floats = np.sqrt(between / within)
    return found
