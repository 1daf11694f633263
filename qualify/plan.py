"""Campaign -> Plan: ordered launches of cells, with stable ids and one content hash."""

from __future__ import annotations

from dataclasses import dataclass, field
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
class EvalPlan:
    """One quality evaluation, the same in every mode; `id` is unique in a plan.

    problems are the ids that must all be answered and scored before it counts; options are
    the kind's own, JSON-ready. style: auto | chat | base | server-chat (see docs/evals.md).
    cache: "any", or "cold": flushed (or bypassed) before each problem, one at a time.
    """

    id: str
    name: str  # humaneval, mbpp, minicode, ...: a key of evals.kinds.KINDS
    measures: tuple[str, ...]  # what each completion is scored by: base, plus, answer ...
    style: str
    sampling: Sampling
    concurrency: int
    cache: str
    first_token_timeout_s: float
    problems: tuple[str, ...]
    problems_sha256: str  # over the problems themselves, wherever they were read from
    subset: str | None = None  # "SEED:N", drawn from the whole set
    thinking: bool | None = None
    options: dict[str, Any] = field(default_factory=dict)
    prompt_tokens: int | None = None  # of all problems; about, where only their text is known


@dataclass(frozen=True)
class ProbePlan:
    """Extra requests that a check needs, sent when a launch's cells and evaluations are done.

    name is the check's. options are the campaign's for that check, JSON-ready. prompts are
    built before any engine starts; which of them is sent how often is the probe's own affair,
    and requests, prompt_tokens and output_tokens say how much that is at most. What it sends
    takes sampling and patience from the cell `like`.
    """

    name: str
    like: CellPlan
    prompts: tuple[PromptSpec, ...]
    requests: int
    prompt_tokens: int
    output_tokens: int
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchPlan:
    """One start of the engine. `id` = rROUND.SIDE, or rROUND.SIDE.again for self-parity."""

    id: str
    round: int
    side: Side
    cells: tuple[CellPlan, ...]
    purpose: str = "measure"  # measure | self-parity
    evals: tuple[EvalPlan, ...] = ()  # after its cells; once a side, in its first launch
    probes: tuple[ProbePlan, ...] = ()  # after those, in the same launch


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
