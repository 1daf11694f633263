"""Charts as inline SVG: a few kilobytes each, the same bytes every time, readable by theme.

Colours and fonts come from the page's style sheet by class name, so that one drawing serves
light, dark and print, and no style attribute meets a content-security policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from qualify.analysis.crossover import Crossover
from qualify.analysis.outcomes import Finding
from qualify.analysis.pairs import PairResult
from qualify.report.show import ratio as shown

WIDTH = 440
_TICKS = (0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16)


class _Scale:
    """A log scale from ratios to pixels."""

    def __init__(self, values: Sequence[float], start: float, stop: float) -> None:
        low, high = min(min(values), 1 / 1.1), max(max(values), 1.1)
        pad = (high / low) ** 0.06
        self.low, self.high = math.log(low / pad), math.log(high * pad)
        self.start, self.stop = start, stop

    def __call__(self, value: float) -> float:
        share = (math.log(value) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 1)

    def ticks(self, apart: float) -> list[float]:
        """Round ratios inside the scale, at least that many pixels apart; 1 always."""
        kept = [1.0]
        for tick in sorted(_TICKS, key=lambda t: abs(math.log(t))):
            inside = self.low <= math.log(tick) <= self.high
            if inside and all(abs(self(tick) - self(k)) >= apart for k in kept):
                kept.append(tick)
        return sorted(kept)


def forest(pairs: Sequence[PairResult]) -> Markup:
    """One line a cell: the decode ratio with its interval, on a log axis around 1."""
    known = [(p, p.decode) for p in pairs if p.decode is not None]
    if not known:
        return Markup("")
    spread = [v for _, f in known for v in _reach(f)]
    scale = _Scale(spread, 14, WIDTH - 14)
    row, top = 40, 26
    height = top + row * len(known) + 12
    parts = [open_svg(WIDTH, height, "Decode ratio by cell, with its interval")]
    parts.append(_margin_band(scale, known[0][1], top - 6, height - 12, vertical=False))
    for tick in scale.ticks(44):
        x = scale(tick)
        line = "one" if tick == 1 else "grid"
        parts.append(f'<line class="{line}" x1="{x}" x2="{x}" y1="{top - 6}" y2="{height - 12}"/>')
        parts.append(
            f'<text class="tick" x="{x}" y="14" text-anchor="middle">{tick:g}&#215;</text>'
        )
    for i, (pair, finding) in enumerate(known):
        y = top + row * i + 28
        name = escape(pair.cell)
        parts.append(f'<text class="name" x="14" y="{y - 13}">{name}</text>')
        parts.append(
            f'<text class="value" x="{WIDTH - 14}" y="{y - 13}" text-anchor="end">'
            f"{shown(finding.ratio)} {escape(finding.outcome)}</text>"
        )
        parts.append(_whisker(scale, finding, y))
        parts.append(_mark(scale(finding.ratio), y, finding.outcome))
    parts.append("</svg>")
    return Markup("".join(parts))


def curve(found: Crossover) -> Markup:
    """The decode ratio over prompt length, both on log axes; nothing for a single shape."""
    if len(found.points) < 2:
        return Markup("")
    height, left, right, top, bottom = 240, 46, WIDTH - 16, 14, 204
    spread = [v for p in found.points for v in _reach(p.finding)]
    scale = _Scale(spread, bottom, top)
    first, last = math.log(found.points[0].tokens), math.log(found.points[-1].tokens)

    def across(tokens: int) -> float:
        share = (math.log(tokens) - first) / (last - first)
        return round(left + 16 + share * (right - left - 32), 1)

    parts = [open_svg(WIDTH, height, f"{found.side} over prompt length")]
    parts.append(_margin_band(scale, found.points[0].finding, left, right, vertical=True))
    for tick in scale.ticks(24):
        y = scale(tick)
        line = "one" if tick == 1 else "grid"
        parts.append(f'<line class="{line}" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="tick" x="{left - 6}" y="{y + 4}" text-anchor="end">{_times(tick)}</text>'
        )
    if found.bracket is not None:
        x0, x1 = across(found.bracket[0]), across(found.bracket[1])
        parts.append(
            f'<rect class="bracket" x="{x0}" y="{top}" width="{x1 - x0:.1f}" '
            f'height="{bottom - top}"/>'
        )
    path = " ".join(f"{across(p.tokens)},{scale(p.finding.ratio)}" for p in found.points)
    parts.append(f'<polyline class="path" points="{path}"/>')
    for point in found.points:
        x, finding = across(point.tokens), point.finding
        if finding.low is not None and finding.high is not None:
            y0, y1 = scale(finding.low), scale(finding.high)
            parts.append(f'<line class="whisker" x1="{x}" x2="{x}" y1="{y0}" y2="{y1}"/>')
        parts.append(_mark(x, scale(finding.ratio), finding.outcome))
        parts.append(
            f'<text class="tick" x="{x}" y="{bottom + 20}" text-anchor="middle">'
            f"{point.tokens:,}</text>"
        )
    parts.append(
        f'<text class="tick" x="{(left + right) / 2}" y="{height - 2}" text-anchor="middle">'
        f"prompt tokens</text></svg>"
    )
    return Markup("".join(parts))


def bars(shares: Sequence[float]) -> Markup:
    """Small columns of shares between 0 and 1: how many steps got to each draft position."""
    step, height = 9, 26
    width = max(step * len(shares), step)
    told = ", ".join(f"{s:.0%}" for s in shares)
    parts = [open_svg(width, height, f"Share of steps that got to draft 1, 2, ...: {told}", "bars")]
    for i, share in enumerate(shares):
        h = round(max(share, 0.0) * (height - 2), 1)
        parts.append(
            f'<rect class="bar" x="{i * step}" y="{height - h}" width="{step - 2}" height="{h}"/>'
        )
    parts.append("</svg>")
    return Markup("".join(parts))


def _times(tick: float) -> str:
    return f"{tick:g}&#215;"


def _reach(finding: Finding) -> tuple[float, ...]:
    """Everything of a finding that must fit on the axis."""
    return tuple(v for v in (finding.ratio, finding.low, finding.high) if v is not None)


def open_svg(width: float, height: float, title: str, kind: str = "chart") -> str:
    """How every drawing begins: its size, and its name for those who cannot see it."""
    told = escape(title)
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{told}"><title>{told}</title>'
    )


def _margin_band(
    scale: _Scale, finding: Finding, start: float, stop: float, *, vertical: bool
) -> str:
    a, b = scale(1 / (1 + finding.margin)), scale(1 + finding.margin)
    if vertical:
        return (
            f'<rect class="band" x="{start}" y="{b}" width="{stop - start}" height="{a - b:.1f}"/>'
        )
    return f'<rect class="band" x="{a}" y="{start}" width="{b - a:.1f}" height="{stop - start}"/>'


def _whisker(scale: _Scale, finding: Finding, y: float) -> str:
    if finding.low is None or finding.high is None:
        return ""
    a, b = scale(finding.low), scale(finding.high)
    return (
        f'<line class="whisker" x1="{a}" x2="{b}" y1="{y}" y2="{y}"/>'
        f'<line class="whisker" x1="{a}" x2="{a}" y1="{y - 4}" y2="{y + 4}"/>'
        f'<line class="whisker" x1="{b}" x2="{b}" y1="{y - 4}" y2="{y + 4}"/>'
    )


def _mark(x: float, y: float, outcome: str) -> str:
    """Shape as well as colour tells the outcome."""
    kind = outcome.replace(" ", "-")
    if outcome == "tied":
        return (
            f'<path class="mark {kind}" d="M{x} {y - 6} L{x + 6} {y} L{x} {y + 6} L{x - 6} {y} Z"/>'
        )
    return f'<circle class="mark {kind}" cx="{x}" cy="{y}" r="5"/>'
