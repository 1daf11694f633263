"""How commands print: JSON on stdout for machines, rich on stdout for people, notes on stderr."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import click

from qualify.errors import QualifyError
from qualify.printable import printable

NARROWEST = 40  # columns; below it a table is a column of single letters


def any_text_prints() -> None:
    """What stdout and stderr cannot encode is shown as an escape: an old locale, or half a
    character in a server's answer, must not lose a report that took hours."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_json(value: Any) -> None:
    """One JSON document on stdout, in ASCII so that no locale can break it; never a NaN."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def print_faults(file: object, error: QualifyError) -> None:
    """What is wrong, as `campaign check --json` tells it: one document, every fault in it."""
    listed = getattr(error, "faults", None)
    if listed is None:
        one = {"file": None, "line": None, "sentence": error.message, "remedy": error.remedy}
        faults = [one]
    else:
        faults = [fault.to_json() for fault in listed]
    print_json({"file": str(file), "ok": False, "faults": faults, "warnings": []})


def console(*, err: bool = False) -> Any:
    """A rich console; colours only on a terminal. Imported late: rich costs start-up time."""
    from rich.console import Console

    made = Console(stderr=err, highlight=False)
    if made.width < NARROWEST:  # a terminal without a size says 0, and would be shown nothing
        made.width = NARROWEST if made.width > 1 else 80
    return made


def warn(text: str) -> None:
    click.secho(f"warning: {printable(text)}", fg="yellow", err=True)


def is_interactive() -> bool:
    """Is there a person to ask?"""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def duration(seconds: float | None) -> str:
    """90 -> "1 min 30 s"; None -> "unknown"."""
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
