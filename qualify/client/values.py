"""Reading values out of other people's JSON: the type that was meant, or None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def count(value: Any) -> int | None:
    """A count of something: a non-negative integer, or None for anything else (also true)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else None


def text(value: Any) -> str:
    """Text, also as a list of `{"type": "text", "text": ...}` parts; "" for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = (p.get("text") for p in value if isinstance(p, dict))
        return "".join(p for p in parts if isinstance(p, str))
    return ""


def ids(value: Any) -> tuple[int, ...] | None:
    """Token ids; None when the value is missing or is not a list of integers."""
    if not isinstance(value, list):
        return None
    if any(isinstance(i, bool) or not isinstance(i, int) for i in value):
        return None
    return tuple(value)


def finite(value: Any) -> Any:
    """Parsed JSON with null for each number that is none: JSON readers accept NaN, Infinity and
    1e999, servers send them, and no file of a run may hold them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    if isinstance(value, tuple):
        return tuple(finite(item) for item in value)
    return value


_EMPTY: Mapping[str, Any] = {}


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object, or an empty one."""
    # JSON objects are dicts; asking for the abstract Mapping costs several times as much.
    return value if isinstance(value, dict) else _EMPTY


def joined(parts: list[str]) -> str:
    """Concatenate pieces; surrogate halves that were escaped in two pieces become one."""
    whole = "".join(parts)
    try:
        whole.encode("utf-8")
    except UnicodeEncodeError:
        return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole


def quote(body: bytes, limit: int = 200) -> str:
    """The first bytes of a body, for an error message."""
    shown = body[:limit].decode("utf-8", "replace").strip()
    return shown + " ..." if len(body) > limit else shown
