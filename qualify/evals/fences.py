"""The visible answer of a completion, and the code blocks in it. One pass over the lines."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

# What tokenizers write for the end of a text or turn, where a server lets it through.
END_MARKERS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|EOT|>",
    "<end_of_turn>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "</s>",
)
_MARKER = re.compile("|".join(map(re.escape, END_MARKERS)))
_OPEN = re.compile(r"^([ \t]*(?:>[ \t]?)*)(`{3,}|~{3,})[ \t]*([^\s`]*)")
_THINK = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
PYTHON = frozenset({"", "py", "python", "python3", "python2", "py3", "pycon", "ipython", "code"})


@dataclass(frozen=True)
class Block:
    """One fenced block; `closed` is false where the text ended inside it."""

    language: str
    code: str
    closed: bool

    @property
    def is_python(self) -> bool:
        """Unlabelled blocks are taken for code."""
        return self.language.lower().strip("{}.") in PYTHON


@dataclass(frozen=True)
class Visible:
    """The answer without thinking text, end markers and carriage returns; notes say which."""

    text: str
    notes: tuple[str, ...] = ()


def visible(text: str) -> Visible:
    """What a reader of the answer sees. Thinking that never ends leaves nothing after it."""
    notes: list[str] = []
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notes.append("carriage returns")
    text = text.lstrip("\ufeff")
    if (marker := _MARKER.search(text)) is not None:
        text = text[: marker.start()]
        notes.append("end marker")
    last_close = opened = None
    for tag in _THINK.finditer(text):
        if tag.group(1):
            last_close, opened = tag.end(), None
        elif opened is None:
            opened = tag.start()
    if opened is not None:
        text = text[last_close or 0 : opened]
        notes.append("thinking that never ends")
    elif last_close is not None:
        text = text[last_close:]
        notes.append("thinking")
    return Visible(text, tuple(notes))


def blocks(text: str) -> list[Block]:
    """Fenced blocks in order: backticks or tildes, any length from 3, indented or quoted.

    A fence with a language inside an open block starts a new one: the first was never closed.
    """
    found: list[Block] = []
    held: list[str] = []
    fence: tuple[str, int, str, str] | None = None  # character, length, language, indent

    def end(closed: bool) -> None:
        assert fence is not None
        found.append(Block(fence[2], _body(held, fence[3]), closed))
        held.clear()

    for line in text.split("\n"):
        mark = _OPEN.match(line)
        if fence is None:
            if mark is not None:
                fence = (mark[2][0], len(mark[2]), mark[3], mark[1])
                rest = line[mark.end() :].strip()
                if rest.startswith(("def ", "import ", "from ", "class ")):
                    held.append(rest)  # code on the fence's own line
            continue
        same = mark is not None and mark[2][0] == fence[0]
        if (
            same
            and mark is not None
            and len(mark[2]) >= fence[1]
            and not line[mark.end(2) :].strip()
        ):
            end(True)
            fence = None
        elif same and mark is not None and mark[3] and len(mark[2]) == fence[1]:
            end(False)
            fence = (mark[2][0], len(mark[2]), mark[3], mark[1])
        elif line.rstrip().endswith(fence[0] * fence[1]):
            held.append(line.rstrip().rstrip(fence[0]))  # closed at the end of a line of code
            end(True)
            fence = None
        else:
            held.append(line)
    if fence is not None:
        end(False)
    return found


def before_fence(text: str) -> str:
    """The lines above the first fence; all of them where there is none."""
    lines = text.split("\n")
    at = next((n for n, line in enumerate(lines) if _OPEN.match(line)), len(lines))
    return "\n".join(lines[:at])


def _body(lines: list[str], indent: str) -> str:
    if ">" in indent:
        lines = [re.sub(r"^[ \t]*(?:>[ \t]?)+", "", line) for line in lines]
        indent = ""
    text = "\n".join(lines)
    if "\n>>> " in f"\n{text}":
        text = _session(lines)
    return textwrap.dedent(text) if indent else text


def _session(lines: list[str]) -> str:
    """The input lines of an interactive session, unless it is a docstring inside code."""
    if not next((line for line in lines if line.strip()), "").startswith(">>> "):
        return "\n".join(lines)
    return "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))
