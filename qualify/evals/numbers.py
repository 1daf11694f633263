"""The number that an answer to a word problem ends in, out of whatever stands around it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

# A minus is a sign only where nothing is subtracted; a full stop ends a sentence unless a digit
# follows; a comma parts thousands only.
_NUMBER = re.compile(
    r"(?<![\w.])(?P<minus>-)?(?:[$\u20ac\u00a3\u00a5]\s?)?(?P<minus2>-)?"
    r"(?P<whole>\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?P<part>\.\d+)?(?P<power>[eE][+-]?\d+(?!\w))?"
    r"(?:\s?/\s?(?P<below>\d+(?!\d*[.,]\d))(?![\w/]))?"
)
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_SAID = re.compile(
    r"(?:final answer|the answer|answer)\s*(?:is|:|=|was|comes to)+\s*:?\s*([^\n]*)", re.IGNORECASE
)
_NEXT_PROBLEM = re.compile(r"\n\s*(?:Question|Problem|Q|User|Human)\s*\d*\s*:", re.IGNORECASE)
_DASHES = re.compile("[\u2010-\u2015\u2212\ufe63\uff0d]")
_JUNK = re.compile(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}|\\[!,;: ]|\\left|\\right")

LONGEST = 400  # characters: what is longer is no answer, and reading it takes its time


@dataclass(frozen=True)
class Answer:
    """value: exact, None where there is none. how: hashes, boxed, said or last."""

    value: Fraction | None
    how: str | None
    text: str | None = None


def final_number(text: str, *, cut: bool = False) -> Answer:
    """The last `#### x`, else the last boxed one, else "the answer is x", else the last number.

    What follows the start of another problem is not part of the answer. `cut`: the answer was
    ended by its token limit; the last number of an unfinished calculation is no answer then.
    """
    text = _NEXT_PROBLEM.split(_clean(text), maxsplit=1)[0]
    marked = [m[1] for m in _HASHES.finditer(text) if numbers(m[1])]
    if marked:
        return _picked(_result(marked[-1]), "hashes")
    boxed = [inside for inside in _boxes(text) if numbers(inside)]
    if boxed:
        return _picked(numbers(boxed[-1])[-1], "boxed")
    said = [m[1] for m in _SAID.finditer(text) if numbers(m[1])]
    if said:
        return _picked(_result(said[-1]), "said")
    found = numbers(text)
    if found and not cut:
        return _picked(found[-1], "last")
    return Answer(None, None)


def numbers(text: str) -> list[tuple[Fraction, str]]:
    """Every number of a text, exact, with how it was written."""
    found: list[tuple[Fraction, str]] = []
    for match in _NUMBER.finditer(text):
        whole, part = match["whole"], match["part"]
        if (whole is None and part is None) or len(match[0]) > LONGEST:
            continue
        value = Fraction(f"{(whole or '0').replace(',', '')}{part or ''}{_power(match['power'])}")
        if match["below"] is not None and int(match["below"]):
            value /= int(match["below"])
        if match["minus"] or match["minus2"]:
            value = -value
        found.append((value, match[0].strip()))
    return found


def _power(text: str | None) -> str:
    """An exponent that no word problem has is left out: 1e999999 is not worth computing."""
    return text if text is not None and abs(int(text[1:])) <= 30 else ""


def _picked(found: tuple[Fraction, str], how: str) -> Answer:
    return Answer(found[0], how, found[1])


def _result(line: str) -> tuple[Fraction, str]:
    """`5 + 3 = 8 apples.` says 8; `18 dollars, not 20` says 18."""
    sentence = re.split(r"(?<=[^\d])\.(?:\s|$)|\.\s", line, maxsplit=1)[0]
    known = numbers(sentence) or numbers(line)
    after = numbers(sentence.rpartition("=")[2]) if "=" in sentence else []
    return (after or known)[0]


def _clean(text: str) -> str:
    text = _DASHES.sub("-", text).replace("{,}", ",").replace("\u00a0", " ").replace("\u202f", " ")
    text = _LATEX_FRACTION.sub(r"\1/\2", text)
    text = _JUNK.sub(lambda m: f" {m[1]} " if m[1] else "", text)
    return text.replace("\\$", "$").replace("\\%", "%").replace("**", "").replace("`", "")


def _boxes(text: str) -> list[str]:
    """What stands in each \\boxed{...}, braces inside it included."""
    found: list[str] = []
    for match in _BOXED.finditer(text):
        depth, at = 1, match.end()
        stop = min(len(text), at + LONGEST)
        while at < stop and depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        if not depth:
            found.append(text[match.end() : at - 1])
    return found
