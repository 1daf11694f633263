"""`margins`: where outputs differ, how close a call the target itself makes of it (rule 8).

Which outputs differ is known when everything has been measured, so this runs in the plan's last
launch where that is the baseline's, else in a short launch of its own at the end, which is not
started where there is nothing to ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from qualify.plan import LaunchPlan, ProbePlan

NAME = "margins"
PURPOSE = "margins"  # of a launch that has nothing else to do
TARGET_ONLY = "target-only"


def with_margins(
    launches: Sequence[LaunchPlan], baseline: str, engine: Mapping[str, Any]
) -> list[LaunchPlan]:
    """The launches with the probe in the last of them, or with one more launch for it.

    Unchanged where the baseline is not planned, or drafts: it would make its scores up.
    """
    own = next((item for item in launches if item.side.name == baseline and item.cells), None)
    if own is None or not _plain(own.side.mode, engine):
        return list(launches)
    patient = max(own.cells, key=lambda cell: cell.first_token_timeout_s)
    probe = ProbePlan(NAME, patient, (), 0, 0, 0)
    *before, last = launches
    if last.side.name == baseline:
        return [*before, replace(last, probes=(*last.probes, probe))]
    extra = LaunchPlan(
        f"r{last.round}.{baseline}.{NAME}", last.round, own.side, (), PURPOSE, probes=(probe,)
    )
    return [*launches, extra]


def _plain(mode: str, engine: Mapping[str, Any]) -> bool:
    modes = engine.get("modes")
    entry = modes.get(mode) if isinstance(modes, Mapping) else None
    drafter = entry.get("drafter") if isinstance(entry, Mapping) else None
    return drafter == "none" if isinstance(drafter, str) else mode == TARGET_ONLY
