"""Values inside an argument that holds JSON: `speculative-config.model` is a key of that one."""

from __future__ import annotations

import json
from collections.abc import Mapping

from qualify.engines.spec_schema import ArgValue


def value_at(args: Mapping[str, ArgValue], name: str) -> ArgValue:
    """`ARG`, or `ARG.KEY` of an argument that is a JSON object; None where there is none."""
    if name in args:
        return args[name]
    outer, dot, key = name.partition(".")
    found = _object(args.get(outer)) if dot else None
    value = found.get(key) if found is not None else None
    return value if isinstance(value, str | int | float | bool) else None


def with_value(args: Mapping[str, ArgValue], name: str, value: str) -> dict[str, ArgValue]:
    """A copy of `args` with `value` at `name`, which is there already."""
    outer, dot, key = name.partition(".")
    found = _object(args.get(outer)) if dot and name not in args else None
    if found is None:
        return {**args, name: value}
    return {**args, outer: json.dumps({**found, key: value}, separators=(",", ":"))}


def _object(text: ArgValue) -> dict[str, object] | None:
    if not isinstance(text, str):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
