"""Options of `qualify eval needles`; each is a field of `NeedlesEval`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from qualify.errors import UsageError

_OPTIONS = (
    click.option("--tokens", metavar="N[,N]", help="needles: exact size of the prompt; several."),
    click.option("--count", type=click.IntRange(1, 12), help="needles: codes in a prompt."),
    click.option("--depths", metavar="D[,D]", help="needles: where the codes stand, 0 to 1."),
    click.option("--seeds", type=click.IntRange(1), help="needles: prompts of each shape."),
    click.option("--seed", type=click.IntRange(0), help="needles: the first seed."),
    click.option("--turns", type=click.IntRange(1), help="needles: turns of a conversation."),
    click.option("--source", metavar="TEXT", help="needles: corpora/prose, a path, package:NAME."),
    click.option("--repeat", is_flag=True, help="needles: the text may be used more than once."),
    click.option("--fresh-tokens", type=click.IntRange(0), help="needles: the last, short one."),
)


def needle_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def given(own: dict[str, Any]) -> dict[str, Any]:
    """What was said on the command line, as fields. Raises UsageError for what is no number."""
    found = {k: v for k, v in own.items() if v is not None and v is not False}
    for name, number in (("tokens", int), ("depths", float)):
        if name in found:
            try:
                found[name] = [number(part) for part in str(found[name]).split(",")]
            except ValueError:
                raise UsageError(
                    f"--{name} {found[name]} is no list of numbers.",
                    f"Write --{name} 0.1,0.5." if name == "depths" else "Write --tokens 1024,8192.",
                ) from None
    return found
