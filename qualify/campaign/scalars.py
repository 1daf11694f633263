"""What an unquoted word of a campaign means, or why it is refused.

YAML readers disagree about words such as `1e6`, `on`, `012`, `3:30` and `2026-08-19`: YAML 1.1
and 1.2 give them different types, and either is silent about it. A campaign decides what is
measured, so a word that two readers would read differently is refused with what to write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_INT = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+(?:e[-+][0-9]+)?\Z")
_EXPONENT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+(?:\.[0-9]*)?\Z")
_BASED = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)\Z")
_UNDERSCORE = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?\Z")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(?::[0-9]{1,2})+(?:\.[0-9]*)?\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?\Z")
_OTHER_NUMBER = re.compile(r"(?:\+[0-9.]+|-?[0-9]+\.|-?\.[0-9]+)\Z")
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_TRUE = {"yes", "on", "true"}
_FALSE = {"no", "off", "false"}
MOST_DIGITS = 15  # a float and every JSON reader hold this many exactly


@dataclass(frozen=True)
class Trap:
    """A word that is refused: `what` it is, and what to `write` instead."""

    what: str
    write: str


Scalar = str | int | float | bool | None


def resolve(text: str) -> Scalar | Trap:
    """The value of the plain (unquoted) scalar `text`, or the trap that it is."""
    if text in ("", "~", "null"):
        return None
    if text == "true":
        return True
    if text == "false":
        return False
    if _INT.match(text):
        return _integer(text)
    if _FLOAT.match(text):
        return _finite(text)
    return _trap(text) or text


def _integer(text: str) -> int | Trap:
    if len(text.lstrip("-")) > MOST_DIGITS:
        return Trap(f"`{text}` has more than {MOST_DIGITS} digits", f'quote it: "{text}"')
    return int(text)


def _finite(text: str) -> float | Trap:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return Trap(f"`{text}` is too large for a number", "write a number that can be held")
    return value


def _trap(text: str) -> Trap | None:
    quoted = f'"{text}"'
    if text.lower() in _TRUE | _FALSE:
        plain = "true" if text.lower() in _TRUE else "false"
        return Trap(
            f"`{text}` is a switch to some YAML readers and a word to others",
            f"write {plain} for the switch, {quoted} for the word",
        )
    if text.lower() == "null":
        return Trap(f"`{text}` may mean nothing or a word", f"write null for nothing, or {quoted}")
    if _EXPONENT.match(text):
        return Trap(
            f"`{text}` is a number to some YAML readers and text to others",
            f"quote it if it is text, such as a revision: {quoted}; "
            f"write {_plain_number(text)} if it is a number",
        )
    if _LEADING_ZERO.match(text):
        return Trap(
            f"`{text}` starts with 0, which some YAML readers take as octal",
            f"write {_without_zeros(text)} for the number, {quoted} for the text",
        )
    if _BASED.match(text):
        return Trap(
            f"`{text}` is a number in another base",
            f"write it in decimal, or quote it if it is text: {quoted}",
        )
    if _UNDERSCORE.match(text):
        return Trap(
            f"`{text}` has underscores, which some YAML readers drop",
            f"write {text.replace('_', '')} for the number, {quoted} for the text",
        )
    if _SEXAGESIMAL.match(text):
        return Trap(
            f"`{text}` is a number in base 60 to some YAML readers",
            f"quote it if it is text: {quoted}; write a time in plain seconds",
        )
    if _DATE.match(text):
        return Trap(f"`{text}` is a date to some YAML readers", f"quote it: {quoted}")
    if _SPECIAL.match(text):
        return Trap(
            f"`{text}` is not a finite number", "write a finite number, or leave the key out"
        )
    if _OTHER_NUMBER.match(text):
        return Trap(
            f"`{text}` is a number written in a way that not every YAML reader takes",
            f"write {_plain_number(text)} for the number, {quoted} for the text",
        )
    if text in ("=", "<<"):
        return Trap(f"`{text}` has a meaning of its own in YAML 1.1", f"quote it: {quoted}")
    return None


def _plain_number(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        return "it out in digits"
    if abs(value) < 10**MOST_DIGITS and value == int(value):
        return str(int(value))
    if 1e-9 < abs(value) < 10**MOST_DIGITS:
        return f"{value:.12f}".rstrip("0")
    return "it out in digits"


def _without_zeros(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    digits = text.lstrip("+-").lstrip("0") or "0"
    return sign + (digits if not digits.startswith(".") else "0" + digits).rstrip(".")
