"""Prompts for a prepared campaign: the model fetched if need be, its tokenizer loaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from qualify.cli.prepare import Prepared
from qualify.engines.fetch import ensure_model
from qualify.errors import UsageError
from qualify.prompts.exact import build
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.prompts.tokens import Tokenizer


def prompt_builder(prepared: Prepared) -> Callable[[PromptSpec], list[Prompt]]:
    """Raises EngineError when the model cannot be had, UsageError without a tokenizer."""
    engine = prepared.engine
    launch = next(iter(prepared.resolved.values()))
    if engine.model is not None and prepared.campaign.model is None:
        ensure_model(engine, progress=lambda text: click.echo(text, err=True))
    if launch.tokenizer is None:
        raise UsageError(
            f"Engine {engine.name} names no tokenizer, and prompts are built of exact token ids.",
            "Write `tokenizer: PATH` in the campaign: the model's folder, tokenizer.json or .gguf.",
        )
    # A plain OpenAI server may refuse token ids; text that is proven exact is then sent.
    need_text = launch.protocol == "openai"
    return partial(build, tokenizer=Tokenizer.load(launch.tokenizer), need_text=need_text)


def tokenizer_of(prepared: Prepared) -> Callable[[], Tokenizer | None]:
    """The tokenizer that evaluations write their prompts with; None where none is named."""
    path = next(iter(prepared.resolved.values())).tokenizer
    return lambda: Tokenizer.load(path) if path is not None else None
