"""An engine's own log as evidence: read line by line, never held whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qualify.records.run import Run

# What SGLang (and whoever words its log so) prints for every batch: a log that has such a line
# would also say what the checks look for.
BATCH = re.compile(r"(?P<kind>Prefill|Decode) batch, ")
_TIME = re.compile(r"^\[[^\]]*\]\s*|^\d{4}-\d\d-\d\d[ T][\d:.,]+\S*\s*")


@dataclass(frozen=True)
class Line:
    """number counts from 1; offset is that of its first byte in the file."""

    number: int
    offset: int
    text: str


def log_path(run: Run, launch: str) -> Path:
    """Where the log of one launch attempt lies, whether or not there is one."""
    return run.folder / f"engine-{launch.replace('/', '-')}.log"


def lines_of(path: Path) -> Iterator[Line]:
    """Every line, without its end; bytes that are no UTF-8 are replaced. Nothing where no file."""
    if not path.is_file():
        return
    offset = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            yield Line(number, offset, raw.decode("utf-8", "replace").rstrip("\r\n"))
            offset += len(raw)


def bare(text: str) -> str:
    """The line without its time and rank, so that repeats are seen as such."""
    return _TIME.sub("", text).strip()


def launches_of(run: Run) -> dict[str, list[str]]:
    """Side -> the launch attempts that measured, evaluated or probed something of it."""
    wanted = {end.launch for end in run.cells} | {p.launch for p in run.probes}
    found: dict[str, list[str]] = {}
    for entry in run.launches:
        if entry.status == "started" and entry.launch in wanted:
            found.setdefault(entry.side, []).append(entry.launch)
    return found
