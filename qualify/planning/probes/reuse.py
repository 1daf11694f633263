"""`reuse`: one text, and prompts that share more or less of it."""

from __future__ import annotations

from typing import Any

from qualify.plan import LaunchPlan, ProbePlan
from qualify.planning.probes.facts import Facts, room_for, spec_like
from qualify.planning.probes.lifecycle import longest

STREAM = "reuse"
MOST_TOKENS, LEAST_TOKENS = 8192, 2048
OUTPUT_TOKENS = 16


def plan(launch: LaunchPlan, facts: Facts, options: dict[str, Any]) -> ProbePlan:
    """At the campaign's largest shape, between 2,048 and 8,192 tokens, where that fits.

    `tokens` of the options says another. Two texts are built: one that is shared, and one
    that comes in where a prompt parts from it.
    """
    like = max(launch.cells, key=longest)
    wanted = options.get("tokens") or min(max(longest(like), LEAST_TOKENS), MOST_TOKENS)
    room = room_for(facts, 2 * OUTPUT_TOKENS)  # an answer is appended, and one is generated
    tokens = wanted if room is None else min(wanted, room * 4 // 5)
    return ProbePlan(
        name="reuse",
        like=like,
        prompts=(spec_like(like, STREAM, tokens, 2),),
        requests=12,
        prompt_tokens=7 * tokens,
        output_tokens=12 * OUTPUT_TOKENS,
        options={**options, "tokens": tokens, "wanted": wanted},
    )
