"""The prompts of needles: a text of an exact size with its question, and later turns."""

from __future__ import annotations

import dataclasses
from typing import Any

from qualify.evals.needle_words import sentence
from qualify.evals.nouns import Completion, Problem
from qualify.evals.voice import Speaker
from qualify.prompts.corpus import ring
from qualify.prompts.exact import common_prefix, ids_sha256
from qualify.prompts.needle_draft import Haystack, Statement
from qualify.prompts.needles import build_haystack
from qualify.prompts.prompt import Prompt
from qualify.prompts.sessions import between_turns
from qualify.prompts.sources import open_source
from qualify.prompts.tokens import Tokenizer


def first_prompt(problem: Problem, id: str, index: int, voice: Speaker) -> Prompt:
    """The text with its codes and the question, of exactly the problem's size."""
    tokenizer, data = voice.tokenizer, problem.data
    assert tokenizer is not None
    before, after = voice.around()
    asked = _asked(problem.text, voice.style)
    statements = tuple(
        Statement(sentence(n, code), code, depth)
        for n, (code, depth) in enumerate(zip(data["codes"], data["depths"], strict=True))
    )
    built = build_haystack(
        data["tokens"],
        statements,
        (before, asked + after),
        ring(open_source(data["source"]), tokenizer),
        tokenizer,
        tuple(data["key"]),
        repeat=data["repeat"],
    )
    return _prompt(id, index, 0, built.ids, built.text, built.exact, tokenizer, _facts(built))


def _facts(built: Haystack) -> dict[str, Any]:
    return {
        "needles": [dataclasses.asdict(n) for n in built.needles],
        "source_chars": built.source_chars,
        "repeated": built.repeated,
    }


def later_prompt(
    problem: Problem, id: str, voice: Speaker, previous: Prompt, answer: Completion
) -> Prompt:
    """All of the previous prompt, its answer as it was generated, and the next question."""
    tokenizer = voice.tokenizer
    assert tokenizer is not None
    said = answer.record.output_ids
    given = list(said) if said else tokenizer.encode(answer.answer)
    asked = _asked(problem.text, voice.style)
    if voice.style == "chat":
        opening, closing = between_turns(tokenizer, voice.thinking, given)
        asked = f"{opening}{problem.text}{closing}"
    base = previous.ids[: len(previous.ids) - len(tokenizer.suffix)]
    ids = (*base, *given, *tokenizer.encode(asked), *tokenizer.suffix)
    inner = ids[len(tokenizer.prefix) : len(ids) - len(tokenizer.suffix)]
    text = tokenizer.decode(inner)
    exact = tuple(tokenizer.encode(text)) == inner
    turn, facts = problem.data["turn"], {"needles": previous.facts["needles"]}
    made = _prompt(id, previous.index, turn, ids, text, exact, tokenizer, facts)
    return dataclasses.replace(made, shared_prefix=common_prefix(base, ids))


def _asked(text: str, style: str) -> str:
    return f"\n\n{text}" if style == "chat" else f"\n\nQuestion: {text}\nAnswer:"


def _prompt(
    id: str,
    index: int,
    turn: int,
    ids: tuple[int, ...],
    text: str,
    exact: bool,
    tokenizer: Tokenizer,
    facts: dict[str, Any],
) -> Prompt:
    return Prompt(
        id=id,
        ids=ids,
        text=text,
        text_exact=exact,
        sha256=ids_sha256(ids),
        compress_ratio=1.0,
        klass="natural",
        index=index,
        turn=turn,
        template_sha256=tokenizer.template_sha256,
        facts=facts,
    )
