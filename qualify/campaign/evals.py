"""What a campaign's `evals:` may say: a name, or a name with options."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qualify.campaign.strict import Strict


class Subset(Strict):
    """A seeded part of a set; results say so."""

    seed: int = Field(default=0, ge=0)
    """Which ones."""
    count: int = Field(gt=0)
    """How many problems."""


class Asking(Strict):
    """What every evaluation takes."""

    subset: Subset | None = None
    """A seeded part of the problems; all if left out."""
    style: Literal["auto", "chat", "base"] = "auto"
    """chat: the tokenizer's template; base: plain text; auto: chat where there is a template."""
    thinking: bool | None = None
    """The template's thinking switch; null leaves it to the template."""
    output_tokens: int = Field(default=1024, gt=0)
    """The most tokens of an answer."""
    concurrency: int = Field(default=1, gt=0)
    """Requests in flight."""


class CodeEval(Asking):
    """Programs, run against tests in a sandbox."""

    problems: str | None = None
    """A local file instead of the data set's own download."""


class MathEval(Asking):
    """Word problems, answered by a number."""

    problems: str | None = None
    """A local JSONL file of GSM8K's form instead of the data set's own download."""


Depth = Annotated[float, Field(gt=0.0, lt=1.0)]


class NeedlesEval(Asking):
    """Codes hidden in a long text."""

    tokens: int | list[int] = 8192
    """The exact size of a prompt in tokens, question and template included; several: each."""
    count: int = Field(default=5, ge=1, le=12)
    """Codes in a prompt."""
    depths: list[Depth] | None = None
    """Where they stand, from 0 to 1. One for each code; with count 1 a prompt for each."""
    seeds: int = Field(default=1, ge=1)
    """How many prompts of each shape: each has codes, places and text of its own."""
    seed: int = Field(default=0, ge=0)
    """The first seed."""
    turns: int = Field(default=1, ge=1)
    """Above 1: later turns ask for one code each, on a prefix that the cache may hold."""
    source: str = "corpora/prose"
    """The text: as `source` of a workload, or package:NAME."""
    repeat: bool = False
    """May the text be used more than once where it is too short?"""
    fresh_tokens: int = Field(default=1024, ge=0)
    """Size of the short request that follows a flush at the end; 0: none."""
    output_tokens: int = Field(default=96, gt=0)
    """The most tokens of an answer."""


class EvalEntry(Strict):
    """One evaluation with its options."""

    humaneval: CodeEval | None = None
    """HumanEval, scored by its own tests (base) and by those of HumanEval+ (plus)."""
    mbpp: CodeEval | None = None
    """MBPP, scored by its own tests (base) and by those of MBPP+ (plus)."""
    minicode: CodeEval | None = None
    """Forty short problems of this project's own."""
    gsm8k: MathEval | None = None
    """GSM8K: grade-school word problems."""
    needles: NeedlesEval | None = None
    """Retrieval: codes at stated depths of a text of an exact size."""


EVALS: tuple[str, ...] = tuple(EvalEntry.model_fields)


def asked_for(entry: str | EvalEntry) -> list[tuple[str, Asking]]:
    """(name, options) of one entry of `evals:`; a bare name has every default."""
    if isinstance(entry, str):
        annotation = EvalEntry.model_fields[entry].annotation
        kinds = [k for k in getattr(annotation, "__args__", ()) if k is not type(None)]
        made = kinds[0]()
        assert isinstance(made, Asking)
        return [(entry, made)]
    found = [(name, getattr(entry, name)) for name in EVALS]
    return [(name, options) for name, options in found if options is not None]
