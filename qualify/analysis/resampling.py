"""Bootstrap intervals of medians and tails, resampled by prompt (scipy)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qualify.analysis.stats import CONFIDENCE

LEAST_PROMPTS = 5  # with fewer, resampling them shows less than there is to doubt
RESAMPLES = 999
SEED = 20260101  # the same records give the same bytes


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


def quantile_intervals(
    by_prompt: Mapping[object, Sequence[float]], quantiles: Sequence[float]
) -> list[Interval | None]:
    """95% percentile-bootstrap intervals of quantiles of all values together.

    Prompts are drawn, each with all of its values: repeats of a prompt are not independent.
    None for fewer than 5 prompts, and where the values do not differ.
    """
    import numpy as np
    from scipy.stats import bootstrap  # on use: scipy.stats is slow to import

    groups = [list(v) for v in by_prompt.values() if v]
    if len(groups) < LEAST_PROMPTS or not quantiles:
        return [None] * len(quantiles)
    longest = max(map(len, groups))
    whole = all(len(g) == longest for g in groups)
    table = np.full((len(groups), longest), np.nan)
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = group
    if np.nanmin(table) == np.nanmax(table):
        return [None] * len(quantiles)
    measure = np.quantile if whole else np.nanquantile

    def all_quantiles(chosen: np.ndarray, axis: int = -1) -> np.ndarray:
        values = table[np.moveaxis(chosen, axis, -1)]
        flat = values.reshape(*values.shape[:-2], -1)
        found: np.ndarray = measure(flat, list(quantiles), axis=-1)
        return found

    result = bootstrap(
        (np.arange(len(groups)),),
        all_quantiles,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(SEED),
    )
    low, high = (np.atleast_1d(end) for end in result.confidence_interval)
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]
