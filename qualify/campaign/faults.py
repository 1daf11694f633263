"""What is wrong with a campaign file: every fault at once, each with its line and its cure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from qualify.errors import UsageError

Path = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Fault:
    """One thing to mend. `line` counts from 1; None only where the whole file is meant."""

    file: str
    line: int | None
    sentence: str
    remedy: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.sentence}\n  {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "line": self.line,
            "sentence": self.sentence,
            "remedy": self.remedy,
        }


class CampaignFaults(UsageError):
    """A campaign file that says something unknown, impossible or ambiguous: all of it."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(set(faults), key=lambda f: (f.line or 0, f.sentence)))
        super().__init__("\n".join(str(f) for f in self.faults), "")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A remedy: the nearest known name, else the whole list."""
    near = difflib.get_close_matches(word.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    for name in known:
        if near and name.lower() == near[0]:
            return f"Did you mean `{name}`?"
    if not known:
        return "Nothing is known by any name here."
    return f"Known: {', '.join(known)}."
