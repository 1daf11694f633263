"""Chat templates: Jinja in a sandbox, rendered as the servers render them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from qualify.errors import UsageError


@dataclass(frozen=True)
class Message:
    """One message of a conversation. role: system | user | assistant | tool."""

    role: str
    content: str


class TemplateRefusal(Exception):
    """The template itself said no (`raise_exception`), for example to a system message."""


@dataclass(frozen=True)
class ChatTemplate:
    """A model's own template. `specials` holds bos_token, eos_token and the like by name."""

    source: str
    specials: tuple[tuple[str, str], ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source.encode("utf-8")).hexdigest()

    def render(
        self,
        messages: Sequence[Message],
        *,
        generation_prompt: bool = True,
        thinking: bool | None = None,
    ) -> str:
        """The text that a server would tokenise, special tokens written out.

        Raises TemplateRefusal where the template rejects the messages, UsageError where it
        cannot be rendered at all.
        """
        extra: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        import jinja2

        try:
            return _compiled(self.source)(
                messages=[{"role": m.role, "content": m.content} for m in messages],
                add_generation_prompt=generation_prompt,
                **dict(self.specials),
                **extra,
            )
        except jinja2.TemplateError as error:
            raise UsageError(
                f"The chat template cannot be rendered: {error}.",
                "Give another tokenizer, or set `template: false` on the workload.",
            ) from error


@lru_cache(maxsize=8)
def _compiled(source: str) -> Callable[..., str]:
    # Same switches as the reference implementation in transformers, which servers follow.
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} only marks the assistant's part; the text is left as it is."""

        tags = {"generation"}  # noqa: RUF012 - Jinja's own interface

        def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateRefusal(message)

    def to_json(value: Any, indent: int | None = None, **options: Any) -> str:
        options.setdefault("ensure_ascii", False)
        return json.dumps(value, indent=indent, **options)

    def no_clock(_: str) -> str:
        # A template that prints today's date would make each day's prompts differ.
        return "2025-01-01"

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = no_clock
    try:
        return environment.from_string(source).render
    except jinja2.TemplateError as error:
        raise UsageError(
            f"The chat template is not valid Jinja: {error}.",
            "Give another tokenizer, or set `template: false` on the workload.",
        ) from error
