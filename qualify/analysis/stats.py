"""The few statistics that reports need, each withheld where n cannot support it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

QUANTILES = (0.9, 0.95, 0.99)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A set of values. p90, p95 and p99 need at least 1/(1-q) values, else None.

    With n = 1 `median` is the one value, and nothing else is known about it.
    """

    n: int
    median: float | None
    mean: float | None
    min: float | None
    max: float | None
    p90: float | None
    p95: float | None
    p99: float | None


def quantile(values: Sequence[float], q: float) -> float | None:
    """Linear interpolation between order statistics; None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def supported(n: int, q: float) -> bool:
    """Can n values speak of that quantile at all? At least 1/(1-q) of them are needed."""
    return n >= math.ceil(1 / (1 - q) - 1e-9)


def summarise(values: Sequence[float]) -> Summary:
    n = len(values)
    if not n:
        return Summary(0, None, None, None, None, None, None, None)
    p90, p95, p99 = (quantile(values, q) if supported(n, q) else None for q in QUANTILES)
    return Summary(
        n, quantile(values, 0.5), math.fsum(values) / n, min(values), max(values), p90, p95, p99
    )


def mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def standard_error(values: Sequence[float]) -> float | None:
    """Of a mean, from the sample's own spread; None with fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    centre = math.fsum(values) / n
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (n - 1) / n)


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95% t interval of a mean, df = n - 1; None with fewer than two values."""
    error = standard_error(values)
    if error is None:
        return None
    centre, half = math.fsum(values) / len(values), t_quantile(len(values) - 1) * error
    return centre - half, centre + half


@lru_cache(maxsize=256)
def t_quantile(df: float) -> float:
    """The two-sided 95% point of Student's t with df degrees of freedom."""
    from scipy.special import stdtrit  # on use: scipy is slow to import

    return float(stdtrit(df, 0.5 + CONFIDENCE / 2))


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t with df degrees of freedom."""
    from scipy.special import stdtr

    return float(stdtr(df, -t))
