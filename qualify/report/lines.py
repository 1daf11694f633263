"""Charts with a line or a row of dots for each mode: over prompt length, over load, and spread.

Drawn like ``charts``: inline SVG without style attributes, colours from the page by class name.
Every mode has its own colour and its own mark, and its name stands at its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from qualify.analysis.sides import SideCell
from qualify.checks.implausible import flaw
from qualify.checks.select import measuring, places
from qualify.records.run import Run
from qualify.report import show
from qualify.report.axes import axis
from qualify.report.charts import open_svg

WIDTH, HEIGHT = 370, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 84, 14, 180
_MARKS = 6  # different marks; a seventh mode shares the first one's
_DOTS = 60  # of a strip; more requests are shown by their quantiles

Value = Callable[[SideCell], float | None]


@dataclass(frozen=True)
class Line:
    """One mode's points, in the order of x. ``number`` picks its colour and mark."""

    name: str
    number: int
    points: tuple[tuple[float, float, str], ...]  # x, y, what the point is


@dataclass(frozen=True)
class Measure:
    title: str
    unit: str
    value: Value
    log: bool
    least: float | None


def _accept(side: SideCell) -> float | None:
    return side.speculation.accept_length if side.speculation else None


MEASURES = (
    Measure("Step time", "ms", lambda s: s.cycle.cycle_ms if s.cycle else None, True, None),
    Measure("Accept length", "tokens a verify step", _accept, False, 1.0),
    Measure("Time to the first token", "s", lambda s: s.ttft_s.median, True, None),
)


@dataclass(frozen=True)
class ShapeCharts:
    """The measures of one workload at one concurrency over prompt length."""

    workload: str
    concurrency: int
    charts: tuple[tuple[Measure, Markup], ...]


def over_shape(sides: Sequence[SideCell]) -> list[ShapeCharts]:
    """One entry for each workload and concurrency that was measured at two lengths or more."""
    numbers = side_numbers(sides)
    groups: dict[tuple[str, int], list[SideCell]] = {}
    for s in sides:
        groups.setdefault((s.workload, s.concurrency), []).append(s)
    found = []
    for (workload, concurrency), mine in groups.items():
        drawn = []
        for measure in MEASURES:
            lines = _lines(mine, numbers, lambda s: s.tokens, measure.value)
            if any(len(line.points) > 1 for line in lines):
                title = f"{measure.title} of {workload} over prompt length"
                drawn.append((measure, chart(lines, title, "prompt tokens", measure)))
        if drawn:
            found.append(ShapeCharts(workload, concurrency, tuple(drawn)))
    return found


def over_load(sides: Sequence[SideCell]) -> list[tuple[str, Markup]]:
    """Server throughput against one user's rate, for work measured at several concurrencies."""
    numbers = side_numbers(sides)
    groups: dict[tuple[str, int], list[SideCell]] = {}
    for s in sides:
        groups.setdefault((s.workload, s.tokens), []).append(s)
    measure = Measure("Server", "tokens/s", lambda s: s.throughput_tok_s, False, 0.0)
    found = []
    for (workload, tokens), mine in groups.items():
        if len({s.concurrency for s in mine}) < 2:
            continue
        mine = sorted(mine, key=lambda s: s.concurrency)
        lines = _lines(mine, numbers, lambda s: s.per_user_tok_s, measure.value)
        name = f"{workload}, {tokens:,} tokens"
        if lines:
            title = f"Server tokens/s against one user's, {name}"
            found.append((name, chart(lines, title, "one user's tokens/s", measure, log_x=False)))
    return found


def strips(run: Run, sides: Sequence[SideCell]) -> list[tuple[str, Markup]]:
    """TPOT of every request, a row of dots for each mode, cell by cell."""
    numbers = side_numbers(sides)
    values: dict[str, dict[str, list[float]]] = {}
    for place in measuring(places(run)):
        for r in place.counted:
            if r.timing.tpot_ms is not None and flaw(r) is None:
                mine = values.setdefault(place.cell.id, {}).setdefault(place.side, [])
                mine.append(r.timing.tpot_ms)
    return [
        (cell, _strip(cell, dict(sorted(mine.items(), key=lambda kept: numbers[kept[0]])), numbers))
        for cell, mine in values.items()
    ]


def side_numbers(sides: Sequence[SideCell]) -> dict[str, int]:
    """Each side's number, the same in every chart of a page."""
    return {name: i for i, name in enumerate(dict.fromkeys(s.side for s in sides))}


def _lines(
    sides: Sequence[SideCell],
    numbers: Mapping[str, int],
    across: Value,
    up: Value,
) -> list[Line]:
    found: dict[str, list[tuple[float, float, str]]] = {}
    for s in sides:
        x, y = across(s), up(s)
        if x is not None and y is not None and x > 0 and y > 0:
            found.setdefault(s.side, []).append((x, y, s.cell))
    return [Line(name, numbers[name], tuple(points)) for name, points in found.items()]


def chart(
    lines: Sequence[Line], title: str, below: str, measure: Measure, *, log_x: bool = True
) -> Markup:
    """Lines on two axes, with a grid, and each mode's name where its line ends."""
    xs = [p[0] for line in lines for p in line.points]
    ys = [p[1] for line in lines for p in line.points]
    right = WIDTH - _RIGHT
    x = axis(xs, _LEFT, right, log=log_x)
    y = axis(ys, _BOTTOM, _TOP, log=measure.log, least=measure.least)
    parts = [open_svg(WIDTH, HEIGHT, title)]
    for tick in y.ticks(26):
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y(tick)}" y2="{y(tick)}"/>'
            f'<text class="tick" x="{_LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">'
            f"{tick:,g}</text>"
        )
    for tick in sorted(set(xs)) if log_x else x.ticks(60):
        parts.append(
            f'<text class="tick" x="{x(tick)}" y="{_BOTTOM + 18}" text-anchor="middle">'
            f"{tick:,g}</text>"
        )
    parts.append(
        f'<text class="tick" x="{(_LEFT + right) / 2}" y="{HEIGHT - 4}" text-anchor="middle">'
        f"{escape(below)}</text>"
    )
    for line in lines:
        path = " ".join(f"{x(a)},{y(b)}" for a, b, _ in line.points)
        parts.append(f'<polyline class="line s{line.number % _MARKS}" points="{path}"/>')
        for a, b, what in line.points:
            parts.append(_mark(x(a), y(b), line.number, f"{line.name}, {what}: {show.number(b)}"))
    for line, at in _labels(lines, y):
        parts.append(
            f'<text class="name t{line.number % _MARKS}" x="{right + 10}" y="{at}">'
            f"{escape(line.name)}</text>"
        )
    parts.append("</svg>")
    return Markup("".join(parts))


def _labels(lines: Sequence[Line], y: Callable[[float], float]) -> list[tuple[Line, float]]:
    """Where each name stands: at its last point, pushed down where another is."""
    placed: list[tuple[Line, float]] = []
    for line in sorted(lines, key=lambda found: y(found.points[-1][1])):
        at = y(line.points[-1][1]) + 4
        if placed:
            at = max(at, placed[-1][1] + 15)
        placed.append((line, round(at, 1)))
    return placed


def _strip(cell: str, rows: Mapping[str, Sequence[float]], numbers: Mapping[str, int]) -> Markup:
    every = [v for mine in rows.values() for v in mine]
    row, left, right = 24, 96, WIDTH - 14
    height = row * len(rows) + 26
    x = axis(every, left, right, log=max(every) > 4 * min(every))
    parts = [open_svg(WIDTH, height, f"TPOT in ms of each request in {cell}")]
    for tick in x.ticks(56):
        parts.append(
            f'<line class="grid" x1="{x(tick)}" x2="{x(tick)}" y1="4" y2="{height - 20}"/>'
            f'<text class="tick" x="{x(tick)}" y="{height - 5}" text-anchor="middle">'
            f"{tick:,g}</text>"
        )
    for n, (side, values) in enumerate(rows.items()):
        at, ordered = 4 + row * n + row / 2, sorted(values)
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{at + 4}" text-anchor="end">'
            f"{escape(side)}</text>"
        )
        kind = f"s{numbers[side] % _MARKS}"
        parts += [f'<circle class="dot {kind}" cx="{x(v)}" cy="{at}" r="3.5"/>'
                  for v in _thinned(ordered)]  # fmt: skip
        middle = x((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)
        parts.append(
            f'<line class="median" x1="{middle}" x2="{middle}" y1="{at - 8}" y2="{at + 8}"/>'
        )
    parts.append("</svg>")
    return Markup("".join(parts))


def _thinned(ordered: Sequence[float]) -> list[float]:
    """Evenly spaced in rank, the smallest and the largest among them."""
    if len(ordered) <= _DOTS:
        return list(ordered)
    last = len(ordered) - 1
    return [ordered[round(i * last / (_DOTS - 1))] for i in range(_DOTS)]


def _mark(x: float, y: float, number: int, told: str) -> str:
    kind, title = f"mark s{number % _MARKS}", f"<title>{escape(told)}</title>"
    shape = number % _MARKS
    if shape == 0:
        return f'<circle class="{kind}" cx="{x}" cy="{y}" r="5">{title}</circle>'
    paths = {
        1: f"M{x - 5} {y - 5} h10 v10 h-10 Z",
        2: f"M{x} {y - 6} L{x + 6} {y + 5} L{x - 6} {y + 5} Z",
        3: f"M{x} {y - 6} L{x + 6} {y} L{x} {y + 6} L{x - 6} {y} Z",
        4: f"M{x} {y + 6} L{x + 6} {y - 5} L{x - 6} {y - 5} Z",
        5: f"M{x - 6} {y - 2} h12 v4 h-12 Z",
    }
    return f'<path class="{kind}" d="{paths[shape]}">{title}</path>'
