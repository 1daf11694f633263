"""Python values as JSON and back, for a channel whose other end is hostile.

This file's source also runs inside the sandbox, before the driver: standard library only, and
nothing at import but definitions. Encoding looks at exact built-in storage through the base
classes' own methods, so that an object with an `__eq__` or `__iter__` of its own is sent as
what it holds or as opaque, never as what it claims to be.

None, true, false, text and integers below 2^53 are themselves; everything else is a list that
starts with a tag: i (int, hexadecimal), f (float, hexadecimal), c (complex), b (bytes), l, t, s,
S (list, tuple, set, frozenset), d (dict, as pairs), o (opaque: its type's name).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

DEEPEST = 200  # nesting; a value that contains itself ends here
_EXACT = 1 << 53
LARGEST_CHARS = 4_000_000  # of one value's JSON; a larger one is sent as a digest


class Opaque:
    """Stands for a value that cannot cross: equal to nothing, itself included."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def encode(value: Any, depth: int = 0) -> Any:
    """JSON-ready; opaque where it is no built-in value or nested too deep."""
    kind = type(value)
    if value is None or value is True or value is False:
        return value
    if depth > DEEPEST:
        return ["o", "too deep"]
    if issubclass(kind, str):
        return value if kind is str else str.__add__(value, "")
    if issubclass(kind, int):
        number = int.__index__(value)
        return number if -_EXACT < number < _EXACT else ["i", hex(number)]
    if issubclass(kind, float):
        return ["f", float.hex(value)]
    if issubclass(kind, complex):
        plain = complex.__add__(value, 0j)
        return ["c", float.hex(plain.real), float.hex(plain.imag)]
    if issubclass(kind, bytes):
        return ["b", bytes.hex(value)]
    if issubclass(kind, list):
        return ["l", *[encode(v, depth + 1) for v in list.__iter__(value)]]
    if issubclass(kind, tuple):
        return ["t", *[encode(v, depth + 1) for v in tuple.__iter__(value)]]
    if issubclass(kind, set):
        return ["s", *sorted([encode(v, depth + 1) for v in set.__iter__(value)], key=json.dumps)]
    if issubclass(kind, frozenset):
        held = [encode(v, depth + 1) for v in frozenset.__iter__(value)]
        return ["S", *sorted(held, key=json.dumps)]
    if issubclass(kind, dict):
        pairs = [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in dict.items(value)]
        return ["d", *pairs]
    return ["o", str.__str__(kind.__name__)[:80]]


def decode(data: Any, depth: int = 0) -> Any:
    """The value; raises ValueError on anything that `encode` does not write."""
    if data is None or isinstance(data, str | int):
        return data
    if not isinstance(data, list) or not data or depth > DEEPEST + 1:
        raise ValueError("no encoded value")
    tag, *rest = data
    try:
        if tag == "i":
            return int(rest[0], 16)
        if tag == "f":
            return float.fromhex(rest[0])
        if tag == "c":
            return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
        if tag == "b":
            return bytes.fromhex(rest[0])
        if tag == "o":
            return Opaque(str(rest[0]))
        if tag == "d":
            return {decode(k, depth + 1): decode(v, depth + 1) for k, v in rest}
        made = [decode(v, depth + 1) for v in rest]
        if tag in ("l", "t", "s", "S"):
            return {"l": list, "t": tuple, "s": set, "S": frozenset}[tag](made)
    except (TypeError, IndexError, OverflowError, AttributeError) as error:
        raise ValueError(f"no encoded value: {error}") from None
    raise ValueError("no encoded value")


def pack(value: Any) -> dict[str, Any]:
    """{"v": encoded}, or {"h": sha256, "n": chars} where that is too large to send.

    The digest is over the same JSON; sets are in a stable order.
    """
    text = json.dumps(encode(value), separators=(",", ":"))
    if len(text) <= LARGEST_CHARS:
        return {"v": text}
    return {"h": hashlib.sha256(text.encode()).hexdigest(), "n": len(text)}
