"""Options that several commands share, worded once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")(
        function
    )


def campaign_argument(function: F) -> F:
    return click.argument("campaign", type=click.Path(path_type=Path), metavar="CAMPAIGN.yaml")(
        function
    )


def only_options(function: F) -> F:
    """--only KEY=VALUE, with more filters allowed as plain words after it."""
    function = click.argument("more", nargs=-1, metavar="[KEY=VALUE]...")(function)
    return click.option(
        "--only",
        multiple=True,
        metavar="KEY=VALUE",
        help="A part of the campaign: mode, workload, tokens, concurrency, round or eval. "
        "Several values with commas, several filters one after the other.",
    )(function)


def checks_option(function: F) -> F:
    """--checks NAME[,NAME]: one value of names, or several of them."""
    return click.option(
        "--checks",
        multiple=True,
        metavar="NAME[,NAME]",
        help="Judge these checks alone, and demand them; those that send requests do so.",
    )(function)


def check_names(checks: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for word in checks for name in word.split(",") if name)


def filter_words(only: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """The filters given; a stray word without --only is refused, not swallowed."""
    if more and not only:
        raise click.UsageError(f"Unexpected {' '.join(more)}. Filters follow --only.")
    return (*only, *more)
