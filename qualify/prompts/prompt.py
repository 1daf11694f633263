"""The nouns of prompt building."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PromptSpec:
    """What decides a set of prompts; part of the plan's hash.

    Seeds derive from campaign, workload and index, never from mode or launch. `stream`
    separates the warm-up prompts ("warmup") from the measured ones ("measured") and from
    probes ("probe"); no two streams share a prompt.
    """

    campaign: str
    workload: str
    source: str  # corpora/{code,prose,mixed,copy,recall} | a path | dataset:NAME
    tokens: int  # N, exact
    count: int
    seed: int
    stream: str = "measured"
    turns: int = 1  # > 1: a conversation that grows turn by turn over a shared prefix
    template: bool = False  # apply the tokenizer's chat template
    thinking: bool | None = None
    repeat: bool = False  # may a source that is too short be repeated?
    growth: int | None = None  # tokens each later turn adds, answer included; None: `tokens`


@dataclass(frozen=True)
class Prompt:
    """One prompt of exactly `len(ids)` tokens.

    text: the decoded text; `text_exact` says whether encode(text) == ids was proven.
    sha256: over the ids as little-endian uint32 (or over the text when ids is empty).
    compress_ratio: zlib size / raw size of the text; under 0.2 the prompt is "repetitive".
    shared_prefix: tokens that it shares by plan with the previous turn of its session.
    frame_tokens: leading tokens that all prompts of its set share (BOS, template opening).
    facts: what the builder of an evaluation's prompt knows of it, kept with the answer.
    """

    id: str  # WORKLOAD@TOKENS/STREAM/INDEX[.TURN]
    ids: tuple[int, ...]
    text: str
    text_exact: bool
    sha256: str
    compress_ratio: float
    klass: str  # natural | repetitive
    index: int
    turn: int = 0
    shared_prefix: int = 0
    template_sha256: str | None = None
    frame_tokens: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
