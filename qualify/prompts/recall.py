"""The recall workload: a table of codes, text, then the table again as far as its first name.

The best continuation is the rest of the table, looked up from the far end of the context: what
a model finds there does not depend on the text in between, however long it is.
"""

from __future__ import annotations

from qualify.prompts.draw import draw, shuffled
from qualify.prompts.frames import Frame
from qualify.prompts.prompt import PromptSpec

_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # I and O look like digits
_NAMES = (
    *("Amber", "Birch", "Cedar", "Delta", "Ember", "Falcon", "Garnet", "Harbor", "Indigo"),
    *("Juniper", "Kestrel", "Lotus", "Maple", "Nectar", "Onyx", "Pebble", "Quartz", "Raven"),
)
_SEPARATOR = "\n\n"


def table(spec: PromptSpec, index: int) -> list[tuple[str, str]]:
    """(name, code) rows of one prompt; one for each 48 tokens of it, from 4 to 10."""
    key = (spec.campaign, spec.workload, spec.stream, spec.seed, index, "recall")
    rows = min(10, max(4, spec.tokens // 48))
    return [(name, _code(draw(*key, name))) for name in shuffled(_NAMES, *key)[:rows]]


def recall_frame(inner: Frame, rows: list[tuple[str, str]]) -> Frame:
    """`rows` before the text and, after it, asked for again from the first name on."""

    def frame(head: str, body: bool) -> tuple[str, str]:
        before, after = inner(head, body)
        if not body:
            return before, after
        listed = "".join(f"{name}: {code}\n" for name, code in rows)
        again = f"{_SEPARATOR}The codes again, in the same order:\n{rows[0][0]}:"
        return f"{before}The codes:\n{listed}\n", f"{again}{after}"

    return frame


def _code(number: int) -> str:
    """Two letters or a letter and a digit, a hyphen, four digits: K7-4410."""
    number, first = divmod(number, len(_LETTERS))
    number, second = divmod(number, len(_LETTERS) + 10)
    mark = _LETTERS[second] if second < len(_LETTERS) else str(second - len(_LETTERS))
    return f"{_LETTERS[first]}{mark}-{number % 10000:04d}"
