"""All figures of a run, from its records and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis.bands import Band, bands
from qualify.analysis.crossover import Crossover, crossovers
from qualify.analysis.margin import DEFAULT_MARGIN, Margin, margin_of
from qualify.analysis.pairs import PairResult, all_pairs, corrected, self_pairs
from qualify.analysis.recommend import Row, recommend
from qualify.analysis.sides import SideCell, side_cells
from qualify.analysis.stability import Drift, Launches, Machine, drifts_of, launches_of, machine_of
from qualify.analysis.timing import CellStats, cell_stats
from qualify.checks.select import places
from qualify.checks.verdict import Verdict
from qualify.evals.compare import Evaluations, evaluate
from qualify.records.run import Run


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
    bands: tuple[Band, ...]
    launch_variation: tuple[Launches, ...]
    drift: tuple[Drift, ...]
    machine: tuple[Machine, ...]
    evals: Evaluations


def analyse(run: Run, verdicts: Sequence[Verdict]) -> Analysis:
    cells = tuple(cell_stats(place) for place in places(run))
    own = tuple(self_pairs(run, DEFAULT_MARGIN))
    margin = margin_of(run.plan, own, all_pairs(run, DEFAULT_MARGIN))
    pairs = tuple(corrected(all_pairs(run, margin.value)))
    sides = tuple(side_cells(run))
    rows = tuple(recommend(run.plan, cells, pairs, verdicts))
    return Analysis(
        margin,
        cells,
        sides,
        pairs,
        own,
        tuple(crossovers(pairs)),
        rows,
        tuple(bands(run.plan.baseline, rows, pairs, sides)),
        tuple(launches_of(run)),
        tuple(drifts_of(run)),
        tuple(machine_of(run)),
        evaluate(run.plan, run.completions, run.scores),
    )
