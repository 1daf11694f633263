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
_PLAIN = frozenset({int, float, str, bool, type(None)})
HUGE_ITEMS = 200_000  # of a list or tuple: hashed, never written out
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
        return ["l", *_items(list(list.__iter__(value)), depth)]
    if issubclass(kind, tuple):
        return ["t", *_items(list(tuple.__iter__(value)), depth)]
    if issubclass(kind, set):
        return ["s", *sorted(_items(list(set.__iter__(value)), depth), key=json.dumps)]
    if issubclass(kind, frozenset):
        return ["S", *sorted(_items(list(frozenset.__iter__(value)), depth), key=json.dumps)]
    if issubclass(kind, dict):
        pairs = [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in dict.items(value)]
        return ["d", *pairs]
    return ["o", str.__str__(kind.__name__)[:80]]


def _items(items: list[Any], depth: int) -> list[Any]:
    """Each encoded; long lists of plain text, numbers and switches without a call an item."""
    kinds = set(map(type, items))
    if kinds <= _PLAIN:
        if int in kinds and not _small(items):
            return [encode(v, depth + 1) for v in items]
        if float not in kinds:
            return items
        return [["f", v.hex()] if type(v) is float else v for v in items]
    return [encode(v, depth + 1) for v in items]


def _small(items: list[Any]) -> bool:
    whole = [v for v in items if type(v) is int]
    return min(whole) > -_EXACT and max(whole) < _EXACT


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
    """{"v": JSON text}, or {"h": sha256} where that is too large to send.

    Equal values have equal digests: numbers count by value, sets and mappings without order.
    In a huge list of containers each item is hashed as `marshal` writes it: inside those 1 and
    1.0 differ, and what marshal cannot write is equal to nothing.
    """
    if type(value) in (list, tuple) and len(value) > HUGE_ITEMS:
        return {"h": _huge(value)}
    encoded = encode(value)
    text = json.dumps(encoded, separators=(",", ":"))
    if len(text) <= LARGEST_CHARS:
        return {"v": text}
    return {"h": digest(encoded)}


def digest(encoded: Any) -> str:
    """Of an encoded value, the same for values that compare equal."""
    text = json.dumps(_canonical(encoded), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(data: Any) -> Any:
    if not isinstance(data, list):
        return int(data) if isinstance(data, bool) else data
    tag, *rest = data
    if tag == "f":
        number = float.fromhex(rest[0])
        return encode(int(number)) if number.is_integer() else data
    if tag in ("i", "c", "b", "o"):
        return data
    if tag == "d":
        pairs = [[_canonical(k), _canonical(v)] for k, v in rest]
        return ["d", *sorted(pairs, key=json.dumps)]
    items = (
        rest if set(map(type, rest)) <= {int, str, type(None)} else [_canonical(v) for v in rest]
    )
    if tag in ("s", "S"):
        return ["s", *sorted(items, key=json.dumps)]
    return [tag, *items]


def _huge(value: Any) -> str:
    import marshal
    import os

    total = hashlib.sha256(type(value).__name__.encode())
    if set(map(type, value)) <= _PLAIN:
        plain = [int(v) if isinstance(v, bool) or _whole(v) else v for v in value]
        total.update(repr(plain).encode("utf-8", "surrogatepass"))
        return total.hexdigest()
    for item in value:
        try:
            total.update(marshal.dumps(item, 2))
        except ValueError:
            return "unmarshallable-" + os.urandom(8).hex()
    return total.hexdigest()


def _whole(value: Any) -> bool:
    return type(value) is float and value.is_integer()
