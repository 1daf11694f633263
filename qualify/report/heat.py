"""The heat map of retrieval: prompt size across, depth down, the share of codes found in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from qualify.evals.recall import RecallCell
from qualify.report.charts import open_svg

_LEFT, _TOP, _WIDE, _HIGH = 56, 8, 66, 30
_LEAST = 300  # the line below the map must fit
_LEVELS = 5  # none, some, half, most, all: the style sheet has a shade for each


@dataclass(frozen=True)
class HeatMap:
    """One evaluation in one mode; cells by (size, depth). Sizes and depths in order."""

    eval: str
    side: str
    sizes: tuple[int, ...]
    depths: tuple[float, ...]
    cells: dict[tuple[int, float], RecallCell]

    def at(self, size: int, depth: float) -> RecallCell | None:
        return self.cells.get((size, depth))

    @property
    def found(self) -> int:
        return sum(c.found for c in self.cells.values())

    @property
    def asked(self) -> int:
        return sum(c.asked for c in self.cells.values())

    def sizes_found(self) -> list[tuple[int, int, int]]:
        """(size, found, asked) of each size."""
        return [
            (
                size,
                sum(c.found for (s, _), c in self.cells.items() if s == size),
                sum(c.asked for (s, _), c in self.cells.items() if s == size),
            )
            for size in self.sizes
        ]


def heat_maps(cells: Sequence[RecallCell]) -> list[HeatMap]:
    """One map for each evaluation and mode, in the order of the cells."""
    groups: dict[tuple[str, str], list[RecallCell]] = {}
    for cell in cells:
        groups.setdefault((cell.eval, cell.side), []).append(cell)
    return [
        HeatMap(
            eval,
            side,
            tuple(sorted({c.tokens for c in mine})),
            tuple(sorted({c.depth for c in mine})),
            {(c.tokens, c.depth): c for c in mine},
        )
        for (eval, side), mine in groups.items()
    ]


def draw(shown: HeatMap) -> Markup:
    """The map as SVG; the share stands in each cell as text too, so colour is never alone."""
    width = max(_LEAST, _LEFT + _WIDE * len(shown.sizes) + 4)
    height = _TOP + _HIGH * len(shown.depths) + 40
    title = f"{shown.eval}, {shown.side}: codes found by prompt size and depth"
    parts = [open_svg(width, height, title, "chart heat")]
    for row, depth in enumerate(shown.depths):
        y = _TOP + _HIGH * row
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 20}" text-anchor="end">{depth:.0%}</text>'
        )
        for column, size in enumerate(shown.sizes):
            cell = shown.at(size, depth)
            if cell is None:
                continue
            x = _LEFT + _WIDE * column
            parts.append(
                f'<rect class="cell heat{level(cell)}" x="{x}" y="{y}" '
                f'width="{_WIDE - 3}" height="{_HIGH - 3}" rx="3"/>'
                f'<text class="value" x="{x + (_WIDE - 3) / 2}" y="{y + 19}" '
                f'text-anchor="middle">{cell.found}/{cell.asked}</text>'
            )
    bottom = _TOP + _HIGH * len(shown.depths)
    for column, size in enumerate(shown.sizes):
        middle = _LEFT + _WIDE * column + (_WIDE - 3) / 2
        parts.append(
            f'<text class="tick" x="{middle}" y="{bottom + 14}" text-anchor="middle">'
            f"{size:,}</text>"
        )
    parts.append(
        f'<text class="tick" x="{_LEFT}" y="{bottom + 32}">prompt tokens; depth at the left</text>'
        "</svg>"
    )
    return Markup("".join(parts))


def level(cell: RecallCell) -> int:
    """0 for none, 4 for all; in between by share, so that one missing never looks like all."""
    if cell.found == 0:
        return 0
    if cell.found == cell.asked:
        return _LEVELS - 1
    return 1 + min(_LEVELS - 3, int((_LEVELS - 2) * cell.found / cell.asked))
