"""Campaign + engine definition -> Plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from qualify.campaign.checks import as_written, parity_is_judged
from qualify.campaign.schema import Campaign, WorkloadSpec
from qualify.errors import UsageError
from qualify.plan import CellPlan, EvalPlan, LaunchPlan, Plan, Side
from qualify.planning.cells import cells_of, many
from qualify.planning.identity import digest, identity_of, normalised
from qualify.planning.only import Only
from qualify.planning.probes import with_probes
from qualify.planning.probes.margins import with_margins
from qualify.planning.sides import all_sides, baseline_of, launch_order, pairs_of


class EngineFacts(Protocol):
    """The part of an engine definition that a plan is made of."""

    @property
    def name(self) -> str: ...
    @property
    def default_profile(self) -> str: ...
    def identity(self) -> dict[str, Any]:
        """The definition, JSON-ready and free of this machine's paths."""
        ...


def make_plan(
    campaign: Campaign,
    engine: EngineFacts,
    *,
    origins: Mapping[str, str] | None = None,
    only: Only | None = None,
    warnings: Iterable[str] = (),
    relaunch: bool = True,
    evals: Iterable[EvalPlan] = (),
) -> Plan:
    """The plan of one run. The same arguments give the same plan, ids and hash.

    `origins` are hashes found on this machine (see `identity_of`); `relaunch` is false for
    a server that is attached to and cannot be started a second time. `evals` run after the
    cells of each side's first launch.
    Raises UsageError where `only` leaves nothing or names what does not exist.
    """
    only = only or Only()
    sides = all_sides(campaign, engine.default_profile)
    _check_filter(only, campaign, sides)
    kept = [s for s in sides if only.allows("mode", s.name)]
    baseline = baseline_of(campaign)
    notes = list(warnings)
    launches = [
        launch
        for number in range(1, campaign.rounds + 1)
        if only.allows("round", number)
        for side in launch_order(campaign, kept, number)
        if (launch := _launch(campaign, side, number, only)).cells
    ]
    if not launches:
        raise UsageError(
            f"--only {only} leaves no cell to measure.", "Name a workload that these modes measure."
        )
    rounds = {launch.round for launch in launches}
    judged = parity_is_judged(
        campaign.checks, sides=len(kept), temperature=campaign.sampling.temperature
    )
    if judged and len(rounds) == 1:
        if relaunch:
            launches += _again(campaign, launches, baseline)
        else:
            notes.append("an attached server is not restarted: self-parity has one launch only")
    if baseline not in {s.name for s in kept}:
        notes.append(f"--only leaves out the baseline {baseline}: nothing is compared with it")
    asked = tuple(evals)
    only.check_known("eval", [e.id for e in asked])
    launches = with_evals(launches, tuple(e for e in asked if only.allows("eval", e.id)))
    launches = with_probes(launches, as_written(campaign.checks), engine.identity())
    if judged and relaunch:
        launches = with_margins(launches, baseline, engine.identity())
    identity = identity_of(campaign, engine.identity(), tuple(launches), origins or {}, str(only))
    return Plan(
        hash=digest(identity),
        campaign=normalised(campaign),
        engine=engine.identity(),
        identity=identity,
        baseline=baseline,
        pairs=pairs_of(campaign, kept),
        launches=tuple(launches),
        checks=as_written(campaign.checks),
        warnings=tuple(notes),
    )


def _launch(campaign: Campaign, side: Side, number: int, only: Only) -> LaunchPlan:
    cells = [
        cell
        for cell in cells_of(campaign, _workloads_of(campaign, side, only))
        if only.allows("tokens", cell.prompts.tokens)
        and only.allows("concurrency", cell.concurrency)
    ]
    return LaunchPlan(f"r{number}.{side.name}", number, side, _rebased(cells))


def _workloads_of(campaign: Campaign, side: Side, only: Only) -> list[WorkloadSpec]:
    return [
        w
        for w in campaign.workloads
        if only.allows("workload", w.name) and (w.modes is None or side.name in w.modes)
    ]


def _rebased(cells: list[CellPlan]) -> tuple[CellPlan, ...]:
    """`repeats_of` names a cell that is still there after filtering."""
    first: dict[tuple[str, int], str] = {}
    result = []
    for cell in cells:
        shape = (cell.workload, cell.prompts.tokens)
        result.append(replace(cell, repeats_of=first.get(shape)))
        first.setdefault(shape, cell.id)
    return tuple(result)


def _again(campaign: Campaign, launches: list[LaunchPlan], baseline: str) -> list[LaunchPlan]:
    """The baseline's second launch, at the end: rule 8 holds the target against itself."""
    wanted = {w.name for w in campaign.workloads if w.self_parity}
    for launch in launches:
        if launch.side.name == baseline:
            cells = [c for c in launch.cells if c.workload in wanted]
            if cells:
                again = replace(
                    launch, id=f"{launch.id}.again", cells=_rebased(cells), purpose="self-parity"
                )
                return [again]
    return []


def with_evals(launches: Iterable[LaunchPlan], evals: tuple[EvalPlan, ...]) -> list[LaunchPlan]:
    """Each side answers once, in its first launch: a greedy answer has no second opinion."""
    seen: set[str] = set()
    result = []
    for launch in launches:
        if launch.purpose == "measure" and launch.side.name not in seen:
            seen.add(launch.side.name)
            launch = replace(launch, evals=evals)
        result.append(launch)
    return result


def _check_filter(only: Only, campaign: Campaign, sides: Iterable[Side]) -> None:
    workloads = campaign.workloads
    only.check_known("mode", [s.name for s in sides])
    only.check_known("workload", [w.name for w in workloads])
    only.check_known("tokens", [t for w in workloads for t in many(w.prompts.tokens)])
    only.check_known("concurrency", [c for w in workloads for c in many(w.concurrency)])
    only.check_known("round", range(1, campaign.rounds + 1))
