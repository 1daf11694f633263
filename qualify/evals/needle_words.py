"""What is hidden and what is asked: codes, statements, questions; and reading an answer.

The wording is the one that the bundled checkpoint was trained on (see its card); any model
that follows instructions understands it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from qualify.prompts.draw import draw, shuffled

_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # I and O look like digits
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)
_COUNTS = (
    *("one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_DASHES = re.compile("[\u2010-\u2015\u2212\u00ad]")
_WITH_DIGIT = re.compile(
    r"[A-Za-z0-9]*\d[A-Za-z0-9]*(?:-[A-Za-z0-9]+)*|[A-Za-z]+(?:-[A-Za-z]*\d\w*)+"
)
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?")
CHARS_PER_CODE = 160  # an answer longer than that is a copy of the text, not an answer


def codes(count: int, key: tuple[str | int, ...]) -> tuple[str, ...]:
    """Codes such as K7-4410: no two share a letter or four digits."""
    letters = shuffled(_LETTERS, "needles", *key, "letters")[:count]
    found: list[str] = []
    digits: set[int] = set()
    for place, letter in enumerate(letters):
        tries = 0
        while (number := draw("needles", *key, "code", place, tries) % 10000) in digits:
            tries += 1
        digits.add(number)
        found.append(f"{letter}{draw('needles', *key, 'mark', place) % 10}-{number:04d}")
    return tuple(found)


def sentence(number: int, code: str) -> str:
    """`number` counts from 0."""
    return f"The {ORDINALS[number]} secret code is {code}."


def question(count: int) -> str:
    if count == 1:
        return ask_one(0)
    return f"List all {_COUNTS[count - 1]} codes that appear in the text."


def ask_one(number: int) -> str:
    return f"What is the {ORDINALS[number]} secret code?"


@dataclass(frozen=True)
class Reading:
    """found and missing: of the expected codes, in their order. spurious: every other code or
    number that the answer gives. cause: None where the set is exact."""

    found: tuple[str, ...]
    missing: tuple[str, ...]
    spurious: tuple[str, ...]
    cause: str | None


def read_answer(answer: str, expected: tuple[str, ...]) -> Reading:
    """Exact set, order free. A word with a digit that is no expected code is spurious, but for
    the numbering of a list (1 to the number of codes); so printing every number is no pass."""
    text = _DASHES.sub("-", answer)
    words = [m[0] for m in _WITH_DIGIT.finditer(text)]
    found = tuple(c for c in expected if c in words)
    missing = tuple(c for c in expected if c not in words)
    wrong = [w for w in words if w not in expected and not _numbering(w, len(expected))]
    spurious = tuple(dict.fromkeys(wrong))
    if not answer.strip():
        cause: str | None = "no-answer"
    elif spurious:
        cause = "spurious"
    elif missing:
        cause = "missing"
    elif len(answer) > CHARS_PER_CODE * len(expected) + CHARS_PER_CODE:
        cause = "echo"
    else:
        cause = None
    return Reading(found, missing, spurious, cause)


def _numbering(word: str, count: int) -> bool:
    match = _ORDINAL.fullmatch(word)
    return match is not None and 1 <= int(match[1]) <= count
