"""Text from outside, made safe for a terminal."""

from __future__ import annotations

# Marks that turn the direction of writing: what is shown is then not what is there.
_TURNING = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """`text` with every character that a terminal would obey written as its escape.

    Line ends and tabs stay. A server's answer, a log line or a file's name can hold sequences
    that move the cursor, retitle the window or hide what stands before them.
    """
    if text.isprintable() and not _TURNING.intersection(text):
        return text
    return "".join(c if _harmless(c) else _escape(c) for c in text)


def _harmless(char: str) -> bool:
    if char in "\n\t":
        return True
    code = ord(char)
    control = code < 0x20 or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xDFFF
    return not control and char not in _TURNING


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
