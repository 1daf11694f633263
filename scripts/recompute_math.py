"""Student's t, by plain numerical integration. Standard library only."""

from __future__ import annotations

import math
from functools import cache


def inside(t: float, df: int) -> float:
    """P(|T| < t) of Student's t, by Simpson's rule over the angle atan(t / sqrt(df))."""
    top, pieces = math.atan(t / math.sqrt(df)), 2000
    width = top / pieces
    total = sum(
        (1 if i in (0, pieces) else 4 if i % 2 else 2) * math.cos(i * width) ** (df - 1)
        for i in range(pieces + 1)
    )
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
    return scale * 2 * total * width / 3


@cache
def t_point(df: int) -> float:
    """Two-sided 95% point of Student's t, by bisection on its distribution function."""
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle, df) < 0.95 else (low, middle)
    return low


def above(t: float, df: int) -> float:
    """P(T > t), by Simpson's rule over the angle beyond it: exact far out in the tail too."""
    if t < 0:
        return 1 - above(-t, df)
    start, pieces = math.atan(t / math.sqrt(df)), 2000
    width = (math.pi / 2 - start) / pieces
    # Close to a right angle the cosine is the sine of what is left.
    total = sum(
        (1 if i in (0, pieces) else 4 if i % 2 else 2) * math.sin(i * width) ** (df - 1)
        for i in range(pieces + 1)
    )
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
    return scale * total * width / 3
