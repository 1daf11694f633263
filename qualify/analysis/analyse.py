"""All figures of a run, from its records and verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis.crossover import Crossover, crossovers
from qualify.analysis.outcomes import LEAST_ROUNDS
from qualify.analysis.pairs import PairResult, all_pairs, self_pairs
from qualify.analysis.recommend import Row, recommend
from qualify.analysis.sides import SideCell, side_cells
from qualify.analysis.timing import CellStats, cell_stats
from qualify.checks.select import places
from qualify.checks.verdict import Verdict
from qualify.records.run import Run

DEFAULT_MARGIN = 0.03


@dataclass(frozen=True)
class Margin:
    """The relative difference under which two sides count as tied, and where it is from."""

    value: float
    source: str


@dataclass(frozen=True)
class Analysis:
    """cells in plan order, missing ones included; everything else follows from them."""

    margin: Margin
    cells: tuple[CellStats, ...]
    sides: tuple[SideCell, ...]
    pairs: tuple[PairResult, ...]
    self_pairs: tuple[PairResult, ...]
    crossovers: tuple[Crossover, ...]
    recommendation: tuple[Row, ...]


def analyse(run: Run, verdicts: Sequence[Verdict]) -> Analysis:
    cells = tuple(cell_stats(place) for place in places(run))
    own = tuple(self_pairs(run, DEFAULT_MARGIN))
    margin = margin_of(run, own)
    pairs = tuple(all_pairs(run, margin.value))
    return Analysis(
        margin,
        cells,
        tuple(side_cells(run)),
        pairs,
        own,
        tuple(crossovers(pairs)),
        tuple(recommend(run.plan, cells, pairs, verdicts)),
    )


def margin_of(run: Run, own: Sequence[PairResult]) -> Margin:
    """3%, or what relaunching the baseline alone did where that was more.

    With at least 3 rounds the interval across launches holds that variation already. With
    fewer it does not, so the largest change seen in the baseline's own relaunch widens the
    margin: a smaller difference between modes cannot be told from a restart.
    """
    rounds = {launch.round for launch in run.plan.launches if launch.purpose == "measure"}
    seen = [(abs(math.log(p.decode.ratio)), p.cell) for p in own if p.decode is not None]
    if len(rounds) >= LEAST_ROUNDS or not seen:
        return Margin(DEFAULT_MARGIN, "default")
    worst, cell = max(seen)
    if math.expm1(worst) <= DEFAULT_MARGIN:
        return Margin(DEFAULT_MARGIN, "default; relaunching the baseline changed less")
    return Margin(
        math.expm1(worst),
        f"relaunching {run.plan.baseline} alone changed its decode by that much in {cell}",
    )
