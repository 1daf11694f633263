"""Placeholders and arguments -> words of a command."""

from __future__ import annotations

import re
from collections.abc import Mapping

from qualify.engines.spec_schema import ArgValue

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def fill(template: str, values: Mapping[str, str]) -> str:
    """`{name}` replaced where `values` has it, and left as it is elsewhere."""
    return PLACEHOLDER.sub(lambda m: values.get(m[1], m[0]), template)


def flags_of(args: Mapping[str, ArgValue], values: Mapping[str, str]) -> list[str]:
    """`name: value` -> `--name value`; true is a bare flag, false and null are left out."""
    flags: list[str] = []
    for name, value in args.items():
        if value is None or value is False:
            continue
        flags.append(f"--{name}")
        if value is not True:
            flags.append(fill(str(value), values))
    return flags


def argv_of(
    template: tuple[str, ...], args: Mapping[str, ArgValue], values: Mapping[str, str]
) -> tuple[str, ...]:
    """The command with its arguments where `{args}` stands, else at its end."""
    if "{args}" not in template:
        template = (*template, "{args}")
    argv: list[str] = []
    for part in template:
        argv += flags_of(args, values) if part == "{args}" else [fill(part, values)]
    return tuple(argv)
