"""What a planner of probes may know of the side that it plans for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from qualify.plan import CellPlan, LaunchPlan
from qualify.prompts.prompt import PromptSpec

# Launch arguments that are one of the sizes (SGLang's names, and vLLM's).
_ARGUMENTS = {
    "context_tokens": ("context-length", "max-model-len"),
    "pool_tokens": ("max-total-tokens",),
    "max_running": ("max-running-requests", "max-num-seqs"),
    "state_slots": ("max-mamba-cache-size",),
}


@dataclass(frozen=True)
class Facts:
    """The sizes that the engine definition's profile states; None where it states none.

    args are the launch arguments of engine, profile, mode and side, the later winning. Where
    mode or side set an argument that is such a size, it is the size.
    """

    context_tokens: int | None
    pool_tokens: int | None
    max_running: int | None
    state_slots: int | None
    state_slots_per_request: int | None
    args: dict[str, Any]
    named: frozenset[str] = frozenset()  # the checks that the campaign names

    @property
    def effective_concurrency(self) -> int | None:
        """Requests that run together: the scheduler's ceiling or the state slots'."""
        limits = [self.max_running]
        if self.state_slots is not None:
            limits.append(self.state_slots // (self.state_slots_per_request or 1))
        known = [limit for limit in limits if limit is not None]
        return min(known) if known else None


def facts_of(
    launch: LaunchPlan, engine: Mapping[str, Any], named: frozenset[str] = frozenset()
) -> Facts:
    """Read from the definition as the plan keeps it, so that no file is read again."""
    side = launch.side
    profile = _entry(engine, "profiles", side.profile or str(engine.get("default_profile")))
    mode = _entry(engine, "modes", side.mode)
    args: dict[str, Any] = {}
    for part in (engine, profile, mode):
        args |= part.get("args") or {}
    over = {**(mode.get("args") or {}), **side.args}
    sizes = {name: _integer(profile, name) for name in _ARGUMENTS}
    for name, aliases in _ARGUMENTS.items():
        sizes[name] = next((n for a in aliases if (n := _integer(over, a))), sizes[name])
    return Facts(
        **sizes,
        state_slots_per_request=_integer(profile, "state_slots_per_request"),
        args={**args, **side.args},
        named=named,
    )


def room_for(facts: Facts, output_tokens: int) -> int | None:
    """The longest prompt that leaves room for the output in context and pool; None: unknown."""
    known = [n for n in (facts.context_tokens, facts.pool_tokens) if n is not None]
    return max(1, min(known) - output_tokens) if known else None


def spec_like(cell: CellPlan, stream: str, tokens: int, count: int = 1) -> PromptSpec:
    """Prompts of the cell's source in a stream of their own; `stream` is the probe's name."""
    return replace(
        cell.prompts,
        stream=stream,
        tokens=tokens,
        count=count,
        turns=1,
        growth=None,
        template=False,
        thinking=None,
        repeat=True,
    )


def _entry(engine: Mapping[str, Any], part: str, name: str) -> Mapping[str, Any]:
    table = engine.get(part)
    entry = table.get(name) if isinstance(table, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}


def _integer(profile: Mapping[str, Any], name: str) -> int | None:
    value = profile.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
