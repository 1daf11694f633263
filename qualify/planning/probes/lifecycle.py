"""`lifecycle`: what is sent to see whether a server is as good after an incident as before."""

from __future__ import annotations

from typing import Any

from qualify.plan import LaunchPlan, ProbePlan
from qualify.planning.probes.facts import Facts, room_for, spec_like

STREAM, SESSION_STREAM = "lifecycle", "lifecycle-session"
LEAST_TOKENS = 8192  # probes of a few hundred tokens passed where 8K failed
PAIRS = 2  # prompts that are generated before and after a flush
OUTPUT_TOKENS = 64
TURN_TOKENS = 16
IDLE_S = 5.0
TURNS, TURNS_A_STRETCH = 12, 4


def plan(launch: LaunchPlan, facts: Facts, options: dict[str, Any]) -> ProbePlan:
    """At the largest shape of the campaign, and at 8,192 tokens or more where that fits.

    `tokens` of the options says another shape, `idle_s` how long nothing is sent.
    """
    like = max(launch.cells, key=longest)
    wanted = options.get("tokens") or max(longest(like), LEAST_TOKENS)
    tokens = min(wanted, room_for(facts, OUTPUT_TOKENS) or wanted)
    shift = max(1, tokens // 4)
    stretches = TURNS // TURNS_A_STRETCH
    text = tokens + (stretches - 1) * shift
    whole = 1 + 2 * PAIRS + 5  # warm-up, before and after, cancelled and again, cold, idle
    turns = stretches + 1  # of each stretch one turn is new, and the last is sent again cold
    return ProbePlan(
        name="lifecycle",
        like=like,
        prompts=(
            spec_like(like, STREAM, tokens, PAIRS + 2),
            spec_like(like, SESSION_STREAM, text),
        ),
        requests=whole + TURNS + 1 + 6,
        prompt_tokens=(whole + turns) * tokens,
        output_tokens=(whole + 6) * OUTPUT_TOKENS + (TURNS + 1) * TURN_TOKENS,
        options={
            **options,
            "tokens": tokens,
            "wanted": wanted,
            "shift": shift,
            "idle_s": options.get("idle_s", IDLE_S),
        },
    )


def longest(cell: Any) -> int:
    """Prompt tokens of a cell's longest request: a session's last turn."""
    growth = cell.prompts.tokens if cell.prompts.growth is None else cell.prompts.growth
    return int(cell.prompts.tokens + (cell.prompts.turns - 1) * growth)
