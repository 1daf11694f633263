"""Which extra requests a campaign's checks ask for, launch by launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from qualify.plan import LaunchPlan, ProbePlan
from qualify.planning.probes import capacity, graphs, lifecycle, reuse, staggered
from qualify.planning.probes.facts import Facts, facts_of

Planner = Callable[[LaunchPlan, Facts, dict[str, Any]], ProbePlan | None]

# In the order in which they run: what may harm a server comes last.
PLANNERS: tuple[tuple[str, Planner], ...] = (
    ("capacity", capacity.plan),
    ("graphs", graphs.plan),
    ("parity", staggered.plan),
    ("reuse", reuse.plan),
    ("lifecycle", lifecycle.plan),
)


def with_probes(
    launches: Iterable[LaunchPlan],
    checks: Mapping[str, Any],
    engine: Mapping[str, Any],
    planners: tuple[tuple[str, Planner], ...] = PLANNERS,
) -> list[LaunchPlan]:
    """Each side is probed once, in its first measuring launch, for the checks that are named.

    `checks` is as the campaign wrote it, `engine` the definition as it is hashed. A check that
    the campaign does not name sends nothing: extra requests are asked for.
    """
    named = frozenset(n for n, written in checks.items() if written is not False)
    seen: set[str] = set()
    result = []
    for launch in launches:
        if launch.purpose == "measure" and launch.cells and launch.side.name not in seen:
            seen.add(launch.side.name)
            facts = facts_of(launch, engine, named)
            planned = [
                planner(launch, facts, _options(checks[name]))
                for name, planner in planners
                if name in named
            ]
            launch = replace(launch, probes=tuple(p for p in planned if p is not None))
        result.append(launch)
    return result


def _options(written: Any) -> dict[str, Any]:
    return dict(written) if isinstance(written, Mapping) else {}
