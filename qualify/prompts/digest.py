"""What a prompt set is, without building it: its hash for the plan, its size for tables."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from qualify.prompts.draw import GENERATOR
from qualify.prompts.prompt import PromptSpec

# Raise it when the same spec, corpus and tokenizer would give other prompts than before.
BUILDER = 1


def growth_of(spec: PromptSpec) -> int:
    """Tokens that each later turn of a session adds, answer included."""
    return spec.tokens if spec.growth is None else spec.growth


def plan_digest(spec: PromptSpec, corpus_sha256: str, tokenizer_sha256: str) -> str:
    """SHA-256 over everything that decides the prompts: spec, texts, tokenizer, generator."""
    parts = {
        "spec": asdict(spec),
        "corpus": corpus_sha256,
        "tokenizer": tokenizer_sha256,
        "generator": GENERATOR,
        "builder": BUILDER,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class Description:
    """What will be sent. prompt_tokens sums over all requests, without any reuse."""

    source: str
    requests: int
    shape: str  # "1,024" or, in sessions, "1,024 +512 x 3"
    prompt_tokens: int
    longest: int


def describe(spec: PromptSpec) -> Description:
    """The size of a prompt set, for tables and time estimates."""
    growth = growth_of(spec)
    lengths = [spec.tokens + turn * growth for turn in range(spec.turns)]
    shape = f"{spec.tokens:,}"
    if spec.turns > 1:
        shape += f" +{growth:,} x {spec.turns - 1}"
    return Description(
        source=spec.source,
        requests=spec.count * spec.turns,
        shape=shape,
        prompt_tokens=spec.count * sum(lengths),
        longest=lengths[-1],
    )
