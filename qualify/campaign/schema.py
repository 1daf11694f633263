"""The shape of a campaign file. pydantic stands here because YAML comes in here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """No unknown keys, no coercion, no change after reading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Variant(Strict):
    """A named overlay of arguments or environment on a mode."""

    mode: str
    args: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    profile: str | None = None


class SamplingSpec(Strict):
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    output_tokens: int = Field(gt=0)
    ignore_eos: bool = True


class PromptsSpec(Strict):
    """tokens may be a list: one cell a shape. turns only with cache: session."""

    source: str
    tokens: int | list[int]
    count: int = Field(gt=0)
    turns: int = Field(default=1, gt=0)
    template: bool = False
    thinking: bool | None = None
    repeat: bool = False


class WarmupSpec(Strict):
    count: int = Field(default=1, ge=0)


class WorkloadSpec(Strict):
    name: str
    prompts: PromptsSpec
    warmup: WarmupSpec = WarmupSpec()
    cache: Literal["cold", "warm", "session"] = "cold"
    concurrency: int | list[int] = 1
    until: Literal["length", "eos"] = "length"
    output_tokens: int | None = Field(default=None, gt=0)
    first_token_timeout_s: float | None = Field(default=None, gt=0)
    modes: list[str] | None = None  # only these sides measure it
    self_parity: bool = True  # measured again in the baseline's second launch


class Expect(Strict):
    """What a change must not alter: output, acceptance."""

    pair: list[str] = Field(min_length=2, max_length=2)
    same: list[Literal["output", "acceptance"]] = Field(min_length=1)


class LedgerLine(Strict):
    experiment: str
    observation: str | None = None
    disposition: str | None = None


class Campaign(Strict):
    campaign: str
    engine: str
    profile: str | dict[str, str] | None = None
    modes: list[str] = Field(min_length=1)
    variants: dict[str, Variant] = Field(default_factory=dict)
    baseline: str | None = None  # default: the first mode
    rounds: int = Field(default=1, gt=0)
    pairs: Literal["all", "baseline"] | list[list[str]] = "baseline"
    expect: list[Expect] = Field(default_factory=list)
    sampling: SamplingSpec
    workloads: list[WorkloadSpec] = Field(min_length=1)
    checks: dict[str, Any] = Field(default_factory=dict)
    evals: list[str | dict[str, Any]] = Field(default_factory=list)
    gates: dict[str, float] = Field(default_factory=dict)
    ledger: str | list[LedgerLine] | None = None
    seed: int = 0
    model: str | None = None  # a path or name that overrides the engine definition's
    tokenizer: str | None = None
    start_timeout_s: float = Field(default=1800.0, gt=0)
