"""Nouns to JSON and back. Readers accept older lines (defaults) and newer ones (extras)."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

T = TypeVar("T")


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def to_dict(obj: Any) -> dict[str, Any]:
    """A dataclass as plain JSON types; raises ValueError on NaN or infinity.

    Absence is None: a number that is not one must never reach a file (rule 12).
    """
    plain: dict[str, Any] = _adapter(cast(Any, type(obj))).dump_python(obj, mode="python")
    return plain


def utf8(text: str) -> bytes:
    """UTF-8 bytes; a lone surrogate (a broken server can send one) becomes U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text).encode()


def to_line(obj: Any) -> bytes:
    """One JSON object, one line, UTF-8, with its newline."""
    text = json.dumps(to_dict(obj), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return utf8(text) + b"\n"


def from_dict(cls: type[T], data: Any) -> T:
    """Raises pydantic.ValidationError (a ValueError) where `data` is no such object."""
    result: T = _adapter(cast(Any, cls)).validate_python(data)
    return result


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def from_line(cls: type[T], line: bytes) -> T:
    """Raises ValueError where the line is no such object, and where it holds NaN or Infinity."""
    if b"NaN" in line or b"Infinity" in line:  # a text may name them; a number may not be one
        json.loads(line, parse_constant=_refuse)
    result: T = _adapter(cast(Any, cls)).validate_json(line)
    return result
