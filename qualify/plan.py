"""Campaign -> Plan: ordered launches of cells, with stable ids and one content hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qualify.engines.protocol import Sampling
from qualify.prompts.prompt import PromptSpec


@dataclass(frozen=True)
class Side:
    """One thing that is compared: a mode, or a variant of a mode."""

    name: str
    mode: str
    profile: str | None
    args: dict[str, str | int | float | bool | None]
    env: dict[str, str]


@dataclass(frozen=True)
class CellPlan:
    """One workload at one concurrency; `id` = WORKLOAD@TOKENS/cCONCURRENCY, unique in a launch."""

    id: str
    workload: str
    prompts: PromptSpec
    warmup: PromptSpec | None
    sampling: Sampling
    concurrency: int
    cache: str  # cold | warm | session
    until: str  # length | eos
    first_token_timeout_s: float
    repeats_of: str | None = None  # same prompts as that cell, at another concurrency


@dataclass(frozen=True)
class LaunchPlan:
    """One start of the engine. `id` = rROUND.SIDE, or rROUND.SIDE.again for self-parity."""

    id: str
    round: int
    side: Side
    cells: tuple[CellPlan, ...]
    purpose: str = "measure"  # measure | self-parity


@dataclass(frozen=True)
class Plan:
    """What a run will do, in order. `hash` covers campaign, prompts, engine definition,
    image digest and checkpoint, so that --resume can refuse a changed one."""

    hash: str
    campaign: dict[str, Any]  # the normalised campaign
    engine: dict[str, Any]  # the resolved engine definition
    identity: dict[str, str]  # what the hash covers, part by part
    baseline: str
    pairs: tuple[tuple[str, str], ...]
    launches: tuple[LaunchPlan, ...]
    checks: dict[str, Any]
    warnings: tuple[str, ...] = ()
