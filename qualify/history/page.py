"""Trends as one self-contained HTML page, in the report's style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from qualify.history.trends import METRICS, Trend
from qualify.report import show
from qualify.report.charts import open_svg
from qualify.report.pages import environment, own

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440, 150, 52, 12, 12, 122


def page(trends: Sequence[Trend]) -> str:
    """No script, nothing from the network; everything from outside escaped."""
    style, style_hash = own("style.css")
    return (
        environment()
        .get_template("history.html.j2")
        .render(
            shown=[(t, chart(t), worded(t)) for t in trends],
            style=style,
            style_hash=style_hash,
            show=show,
        )
    )


def worded(trend: Trend) -> str:
    """What the series says, in one sentence."""
    count, last = len(trend.points), trend.points[-1]
    now = f"{count} run{'s' if count != 1 else ''}, last {show.number(last.value)} {trend.unit}"
    if count < 6:
        return f"{now.rstrip()}. Change points need 6 runs."
    if not trend.changes:
        return f"{now.rstrip()}. No change point."
    steps = [
        f"{(c.ratio - 1) * 100:+.1f}% {_way(trend.metric, c.ratio)}from "
        f"{trend.points[c.index].run} on"
        for c in trend.changes
    ]
    return f"{now.rstrip()}. {'; '.join(steps)}."


def _way(metric: str, ratio: float) -> str:
    less = METRICS[metric][2]
    if less is None:
        return ""
    return "(better) " if (ratio < 1) == less else "(worse) "


def chart(trend: Trend) -> Markup:
    """The figure over runs, evenly spaced, with the level of each part between changes."""
    values = [p.value for p in trend.points]
    low, high = min(values), max(values)
    pad = max((high - low) * 0.15, high * 0.02)
    low, high = low - pad, high + pad

    def x(i: float) -> float:
        share = i / (len(values) - 1) if len(values) > 1 else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(BOTTOM - (value - low) / (high - low) * (BOTTOM - TOP), 1)

    title = f"{trend.metric} of {trend.side}, {trend.cell}, over {len(values)} runs"
    parts = [open_svg(WIDTH, HEIGHT, title)]
    for tick in _ticks(low, high):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick)}" y2="{y(tick)}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>'
        )
    edges = [0, *(c.index for c in trend.changes), len(values)]
    for start, stop in pairwise(edges):
        level = sorted(values[start:stop])[(stop - start) // 2]
        parts.append(
            f'<line class="one" x1="{x(start)}" x2="{x(stop - 1)}" '
            f'y1="{y(level)}" y2="{y(level)}"/>'
        )
    path = " ".join(f"{x(i)},{y(v)}" for i, v in enumerate(values))
    parts.append(f'<polyline class="path" points="{path}"/>')
    for c in trend.changes:
        at = (x(c.index - 1) + x(c.index)) / 2
        parts.append(f'<line class="whisker" x1="{at}" x2="{at}" y1="{TOP}" y2="{BOTTOM}"/>')
    first, last = trend.points[0], trend.points[-1]
    parts.append(
        f'<text class="tick" x="{LEFT}" y="{HEIGHT - 8}">{first.created:%Y-%m-%d}</text>'
        f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">'
        f"{last.created:%Y-%m-%d}</text></svg>"
    )
    return Markup("".join(parts))


def _ticks(low: float, high: float) -> list[float]:
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    for times in (1, 2, 5, 10):
        if (high - low) / (step * times) <= 4:
            step *= times
            break
    first = math.ceil(low / step)
    return [round(i * step, 10) for i in range(first, math.floor(high / step) + 1)]
