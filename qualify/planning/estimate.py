"""How much a plan sends, and how long it should take: arithmetic, stated with its basis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qualify.plan import CellPlan, EvalPlan, LaunchPlan, Plan, Side
from qualify.planning.identity import digest_of_cell
from qualify.prompts.prompt import PromptSpec


@dataclass(frozen=True)
class Rates:
    """Tokens a second of one stream, and seconds until a launch is ready."""

    prefill_tps: float
    decode_tps: float
    start_s: float
    source: str  # where they come from, in words


@dataclass(frozen=True)
class History:
    """What earlier runs took: (side, cell digest) -> seconds, and rates by side and profile."""

    cells: dict[tuple[str, str], float]
    rates: dict[tuple[str, str | None], Rates]


NO_HISTORY = History({}, {})


@dataclass(frozen=True)
class Load:
    """What a cell or a plan sends: warm-up and priming included."""

    requests: int
    prompt_tokens: int
    output_tokens: int

    def __add__(self, other: Load) -> Load:
        return Load(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
        )


@dataclass(frozen=True)
class LaunchEstimate:
    launch: str
    load: Load
    seconds: float | None  # None: no rate is known
    cells: tuple[float | None, ...]
    evals: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Estimate:
    load: Load
    seconds: float | None
    basis: tuple[str, ...]
    launches: tuple[LaunchEstimate, ...]


def load_of(cell: CellPlan) -> Load:
    """Tokens that a cell sends at most: a reused prefix is counted as if it were prefilled."""
    sets = [cell.prompts]
    if cell.cache == "warm":
        sets.append(cell.prompts)  # every prompt is sent once before it is measured
    if cell.warmup is not None:
        sets.append(cell.warmup)
    requests = sum(s.count * s.turns for s in sets)
    return Load(requests, sum(map(_tokens, sets)), requests * cell.sampling.output_tokens)


def load_of_eval(item: EvalPlan) -> Load:
    """Every answer up to its limit; a prefix that later turns reuse is counted as prefilled."""
    asked = len(item.problems)
    return Load(asked, item.prompt_tokens or 0, asked * item.sampling.output_tokens)


def _tokens(spec: PromptSpec) -> int:
    """Turn t of a session has tokens + t * growth."""
    growth = spec.tokens if spec.growth is None else spec.growth
    return spec.count * sum(spec.tokens + turn * growth for turn in range(spec.turns))


def estimate(
    plan: Plan,
    stated: Callable[[Side], Rates | None],
    history: History = NO_HISTORY,
) -> Estimate:
    """`stated` gives the engine definition's rates for a side; an earlier run's win over them.

    Concurrency is taken to gain nothing, speculation neither: an upper bound where they do.
    """
    basis: dict[str, None] = {}
    launches = tuple(_launch(launch, stated, history, basis) for launch in plan.launches)
    total = Load(0, 0, 0)
    for launch in launches:
        total = total + launch.load
    seconds = [launch.seconds for launch in launches]
    known = [s for s in seconds if s is not None]
    return Estimate(
        load=total,
        seconds=sum(known) if len(known) == len(seconds) else None,
        basis=tuple(basis),
        launches=launches,
    )


def _launch(
    launch: LaunchPlan,
    stated: Callable[[Side], Rates | None],
    history: History,
    basis: dict[str, None],
) -> LaunchEstimate:
    side = launch.side
    rates = history.rates.get((side.name, side.profile)) or stated(side)
    total = Load(0, 0, 0)
    cells: list[float | None] = []
    for cell in launch.cells:
        load = load_of(cell)
        total = total + load
        before = history.cells.get((side.name, digest_of_cell(cell)))
        if before is not None:
            basis["the same cells in an earlier run"] = None
            cells.append(before)
        elif rates is not None:
            basis[rates.source] = None
            cells.append(_seconds(load, rates))
        else:
            cells.append(None)
    probing = 0.0
    for probe in launch.probes:
        total = total + Load(probe.requests, probe.prompt_tokens, probe.output_tokens)
        if rates is not None:
            basis[rates.source] = None
            probing += probe.prompt_tokens / rates.prefill_tps
            probing += probe.output_tokens / rates.decode_tps
    evals: list[float | None] = []
    for item in launch.evals:
        load = load_of_eval(item)
        total = total + load
        if rates is not None:
            basis[rates.source] = None
        evals.append(_seconds(load, rates))
    known = [c for c in (*cells, *evals) if c is not None]
    complete = rates is not None and len(known) == len(cells) + len(evals)
    start = rates.start_s if rates is not None else 0.0
    seconds = start + sum(known) + probing if complete else None
    return LaunchEstimate(launch.id, total, seconds, tuple(cells), tuple(evals))


def _seconds(load: Load, rates: Rates | None) -> float | None:
    if rates is None:
        return None
    return load.prompt_tokens / rates.prefill_tps + load.output_tokens / rates.decode_tps
