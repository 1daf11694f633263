"""`capacity`: one request that fills the limit, one token more, and a crowd at once."""

from __future__ import annotations

from typing import Any

from qualify.plan import LaunchPlan, ProbePlan
from qualify.planning.probes.facts import Facts, spec_like

STREAM = "capacity"
LIMIT_OUTPUT = 16  # tokens generated at the limit; the rest of it is prompt
CROWD_TOKENS = 128
CROWD_OUTPUT = 96  # long enough that all of the crowd decode before the first one ends
CROWD_MOST = 64  # more requests at once than this are not tried


def plan(launch: LaunchPlan, facts: Facts, options: dict[str, Any]) -> ProbePlan | None:
    """A prompt of limit - 16 tokens is sent twice (16 and 17 tokens of output), then a crowd.

    `limit: false` and `concurrency: false` of the options leave a part out. The limit is the
    context of one request, or the pool where that is smaller. None when nothing is left.
    """
    like = max(launch.cells, key=lambda c: c.prompts.tokens)
    prompts, requests, tokens, output = [], 0, 0, 0
    limit = limit_of(facts) if options.get("limit", True) else None
    if limit is not None and limit > LIMIT_OUTPUT:
        prompts.append(spec_like(like, STREAM, limit - LIMIT_OUTPUT))
        requests, tokens, output = 2, 2 * (limit - LIMIT_OUTPUT), 2 * LIMIT_OUTPUT + 1
    crowd = crowd_of(facts) if options.get("concurrency", True) else None
    if crowd is not None:
        short = CROWD_TOKENS if limit is None else min(CROWD_TOKENS, limit // 2)
        prompts.append(spec_like(like, STREAM, short, crowd))
        requests, tokens = requests + crowd, tokens + crowd * short
        output += crowd * CROWD_OUTPUT
    if not prompts:
        return None
    return ProbePlan(
        name="capacity",
        like=like,
        prompts=tuple(prompts),
        requests=requests,
        prompt_tokens=tokens,
        output_tokens=output,
        options={**options, "limit_tokens": limit, "crowd": crowd},
    )


def limit_of(facts: Facts) -> int | None:
    """Input and output of one request together; None where the profile states no context."""
    sizes = [n for n in (facts.context_tokens, facts.pool_tokens) if n is not None]
    return min(sizes) if facts.context_tokens is not None else None


def crowd_of(facts: Facts) -> int | None:
    """More requests than should run together, so that the ceiling shows; None: not known."""
    effective = facts.effective_concurrency
    if effective is None:
        return None
    ceiling = facts.max_running or effective
    return min(max(effective + 2, min(2 * effective, ceiling)), CROWD_MOST)
