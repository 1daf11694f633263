"""The shape of a campaign file. pydantic stands here because YAML comes in here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from qualify.campaign.checks import ChecksSpec
from qualify.campaign.evals import EvalEntry
from qualify.campaign.strict import Strict


class Variant(Strict):
    """A named overlay of arguments or environment on a mode."""

    mode: str
    """The mode that this varies."""
    args: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    """Launch arguments that are set or replaced; null removes one."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables that are set or replaced."""
    profile: str | None = None
    """The launch profile, where it is not the mode's own."""


class SamplingSpec(Strict):
    """Every sampling field is sent with each request: a server's defaults are not greedy."""

    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy; above 0 output parity cannot be judged."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; 1 is off."""
    top_k: int | None = Field(default=None, gt=0)
    """Sample among the k likeliest; null leaves it out."""
    seed: int | None = Field(default=None, ge=0)
    """The server's sampling seed."""
    output_tokens: int = Field(gt=0)
    """How many tokens each request generates."""
    ignore_eos: bool = True
    """Go on after the end-of-text token; false needs `until: eos`."""


class PromptsSpec(Strict):
    """tokens may be a list: one cell a shape. turns only with cache: session."""

    source: str
    """corpora/{code,prose,mixed,copy,recall}, a text file or folder, or dataset:NAME."""
    tokens: int | list[int]
    """Exact prompt length in tokens, or a list of them: one cell each."""
    count: int = Field(gt=0)
    """How many different prompts (conversations, in sessions) are measured."""
    turns: int = Field(default=1, gt=0)
    """Turns of a conversation; above 1 only with `cache: session`."""
    growth: int | None = Field(default=None, gt=0)
    """Tokens that each later turn adds, the answer included; as many as `tokens` if left out."""
    template: bool = False
    """Apply the tokenizer's chat template."""
    thinking: bool | None = None
    """The template's thinking switch; null leaves it to the template."""
    repeat: bool = False
    """A source that is too short may be repeated."""


class WarmupSpec(Strict):
    """Requests of the same shape, before the measured ones and never reported."""

    count: int = Field(default=1, ge=0)
    """How many; they have prompts of their own."""


class WorkloadSpec(Strict):
    """Prompts of one shape, an output budget, a concurrency and a cache policy."""

    name: str
    """A short name, unique in the campaign."""
    prompts: PromptsSpec
    """What is sent."""
    warmup: WarmupSpec = WarmupSpec()
    """What is sent before it."""
    cache: Literal["cold", "warm", "session"] = "cold"
    """cold: proven empty; warm: each prompt was sent before; session: grows turn by turn."""
    concurrency: int | list[int] = 1
    """Requests in flight, or a list: one cell each, all with the same prompts."""
    until: Literal["length", "eos"] = "length"
    """length: exactly the output budget; eos: up to the natural end."""
    output_tokens: int | None = Field(default=None, gt=0)
    """Replaces the campaign's sampling.output_tokens."""
    first_token_timeout_s: float | None = Field(default=None, gt=0)
    """How long the first token may take; the first request of a shape may compile for minutes."""
    modes: list[str] | None = None
    """Only these modes or variants measure it."""
    self_parity: bool = True
    """Measured again in the baseline's second launch."""


class Expect(Strict):
    """What a change must not alter."""

    pair: list[str] = Field(min_length=2, max_length=2)
    """Two modes or variants."""
    same: list[Literal["output", "acceptance"]] = Field(min_length=1)
    """What must be the same in both."""


class LedgerLine(Strict):
    """One line of the experiment ledger."""

    experiment: str
    """The question, before anything ran."""
    observation: str | None = None
    """What was seen."""
    disposition: str | None = None
    """What was decided."""


class Campaign(Strict):
    """Which engine, modes, workloads, checks, evaluations and gates."""

    campaign: str
    """The campaign's name; prompts derive their seeds from it."""
    engine: str
    """A name that `qualify engines list` shows."""
    launch: Literal["process", "docker", "attach"] | None = None
    """How the engine is started, where its definition describes more than one way."""
    profile: str | dict[str, str] | None = None
    """One launch profile for all, or one for each mode or variant."""
    modes: list[str] = Field(min_length=1)
    """Decode modes of the engine."""
    variants: dict[str, Variant] = Field(default_factory=dict)
    """Named overlays on a mode; a variant is compared like a mode."""
    baseline: str | None = None
    """What the others are compared with; the first mode if left out."""
    rounds: int = Field(default=1, gt=0)
    """One launch of each side per round, in a seeded order."""
    pairs: Literal["all", "baseline"] | list[list[str]] = "baseline"
    """Which sides are compared: each with the baseline, all, or a list of pairs."""
    expect: list[Expect] = Field(default_factory=list)
    """What a change must not alter, pair by pair."""
    sampling: SamplingSpec
    """How tokens are chosen, and how many."""
    workloads: list[WorkloadSpec] = Field(min_length=1)
    """What is measured."""
    checks: ChecksSpec = ChecksSpec()
    """What must hold for the run to be qualified."""
    evals: list[str | EvalEntry] = Field(default_factory=list)
    """Quality evaluations, run in every mode: names, or a name with its options."""
    gates: dict[str, float] = Field(default_factory=dict)
    """Thresholds of a comparison that decide an exit code."""
    ledger: str | list[LedgerLine] | None = None
    """The question this campaign answers; the report keeps it."""
    seed: int = Field(default=0, ge=0)
    """Changes every prompt and the order of launches."""
    model: str | None = None
    """A path or name that replaces the engine definition's."""
    tokenizer: str | None = None
    """A path or name, where it is not the model's own."""
    start_timeout_s: float = Field(default=1800.0, gt=0)
    """How long an engine may take until it is ready."""
