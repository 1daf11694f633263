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
from qualify.evals.compare import Evaluations, evaluate
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
    evals: Evaluations


def analyse(run: Run, verdicts: Sequence[Verdict]) -> Analysis:
    cells = tuple(cell_stats(place) for place in places(run))
    own = tuple(self_pairs(run, DEFAULT_MARGIN))
    margin = margin_of(run, own, all_pairs(run, DEFAULT_MARGIN))
    pairs = tuple(all_pairs(run, margin.value))
    return Analysis(
        margin,
        cells,
        tuple(side_cells(run)),
        pairs,
        own,
        tuple(crossovers(pairs)),
        tuple(recommend(run.plan, cells, pairs, verdicts)),
        evaluate(run.plan, run.completions, run.scores),
    )


def margin_of(run: Run, own: Sequence[PairResult], pairs: Sequence[PairResult]) -> Margin:
    """3%, or what happened without any speculation at all, where that was more.

    With at least 3 rounds the interval across launches holds launch variation already. With
    fewer it does not. Two things then show how far apart equal work can lie on this machine:
    the baseline relaunched, and a side that proposed nothing and was still faster. A smaller
    difference between modes cannot be told from a restart.
    """
    rounds = {launch.round for launch in run.plan.launches if launch.purpose == "measure"}
    if len(rounds) >= LEAST_ROUNDS:
        return Margin(DEFAULT_MARGIN, "default")
    seen = [
        (
            abs(math.log(p.decode.ratio)),
            f"relaunching {run.plan.baseline} alone changed its decode by that much in {p.cell}",
        )
        for p in own
        if p.decode is not None
    ]
    seen += [
        (
            math.log(p.decode.ratio),
            f"{p.side} was that much faster in {p.cell}, where it proposed nothing",
        )
        for p in pairs
        if p.decode is not None and p.proposed == 0
    ]
    worst, source = max(seen, default=(0.0, ""))
    if math.expm1(worst) > DEFAULT_MARGIN:
        return Margin(math.expm1(worst), source)
    return Margin(DEFAULT_MARGIN, "default; relaunching alone changed less" if own else "default")
