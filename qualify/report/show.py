"""How numbers are shown to people; the same in the terminal and on the page."""

from __future__ import annotations

from qualify.analysis.outcomes import Finding
from qualify.analysis.resampling import Interval
from qualify.analysis.stats import Summary

ABSENT = "\u2013"


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits without exponents; absence is a dash, never 0."""
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.{digits + 3}f}".rstrip("0")


def seconds(value: float | None) -> str:
    """A time in the unit that reads best."""
    if value is None:
        return ABSENT
    return f"{number(value * 1e3)} ms" if value < 1 else f"{number(value)} s"


def typical(summary: Summary, scale: float = 1.0) -> str:
    """The median, or the one value there is."""
    return number(None if summary.median is None else summary.median * scale)


def spread(summary: Summary, scale: float = 1.0) -> str:
    """p90 where n supports it, else smallest to largest; nothing for a single value."""
    if summary.n < 2 or summary.min is None or summary.max is None:
        return ""
    if summary.p90 is not None:
        return f"p90 {number(summary.p90 * scale)}"
    return f"{number(summary.min * scale)} to {number(summary.max * scale)}"


def ratio(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}\u00d7"


def interval(finding: Finding | None) -> str:
    if finding is None or finding.low is None or finding.high is None:
        return ""
    return f"{finding.low:.2f} to {finding.high:.2f}"


def reach(value: Interval | None) -> str:
    return "" if value is None else f"{number(value.low)} to {number(value.high)}"


def percent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0%}"
