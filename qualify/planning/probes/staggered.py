"""`parity` with `staggered: true`: measured prompts again, each joining while others decode."""

from __future__ import annotations

from typing import Any

from qualify.plan import CellPlan, LaunchPlan, ProbePlan
from qualify.planning.probes.facts import Facts

MOST = 8  # requests at once; more only repeat what these show
PASSES = 2


def plan(launch: LaunchPlan, facts: Facts, options: dict[str, Any]) -> ProbePlan | None:
    """The same prompts as the cell with most of them, so that their answers alone are known.

    None unless it is asked for, and where no cold cell has two prompts that fit together.
    """
    if not options.get("staggered"):
        return None
    cells = [c for c in launch.cells if c.cache == "cold" and c.prompts.count > 1]
    for like in sorted(cells, key=lambda c: (-c.prompts.count, c.prompts.tokens)):
        count = _together(like, facts)
        if count > 1:
            requests = 1 + PASSES * count
            return ProbePlan(
                name="parity",
                like=like,
                prompts=(like.prompts,),
                requests=requests,
                prompt_tokens=requests * like.prompts.tokens,
                output_tokens=requests * like.sampling.output_tokens,
                options={**options, "count": count},
            )
    return None


def _together(cell: CellPlan, facts: Facts) -> int:
    """How many of the cell's prompts run at once: those of it, the slots', the pool's."""
    each = cell.prompts.tokens + cell.sampling.output_tokens
    limits = [cell.prompts.count, MOST]
    if facts.effective_concurrency is not None:
        limits.append(facts.effective_concurrency)
    if facts.pool_tokens is not None:
        limits.append(facts.pool_tokens // each)
    return min(limits)
