"""Progress for people: a live view on a terminal, plain lines elsewhere, JSON for machines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from qualify.printable import printable
from qualify.run import events as e


class Tally:
    """What the views show: position, speed and the time that is left."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.cells = self.cells_done = 0
        self.work = self.work_done = 0
        self.launch = self.cell = self.state = ""
        self.cell_tokens, self.cell_seconds = 0, 0.0

    def take(self, event: e.Event) -> None:
        match event:
            case e.RunStarted():
                self.cells, self.cells_done = event.cells, event.cells_done
                self.work = event.work_tokens
            case e.LaunchStarting():
                self.launch, self.cell = event.launch, ""
                self.state = f"starting ({event.position} of {event.of})"
            case e.LaunchReady():
                self.state = f"ready after {event.seconds:.1f} s"
            case e.CellStarted():
                self.cell, self.state = event.cell, "measuring"
                self.cell_tokens, self.cell_seconds = 0, 0.0
            case e.RequestDone():
                self.work_done += event.work_tokens
                self.cell_tokens += event.output_tokens or 0
                self.cell_seconds += event.seconds
            case e.CellEnded() if not event.cell.startswith(e.SCORE):
                self.cells_done += 1
            case _:
                pass

    def eta_s(self) -> float | None:
        """Seconds left at the pace so far; None before a twentieth of the work is done."""
        if not self.work or self.work_done < self.work / 20:
            return None
        elapsed = time.monotonic() - self.started
        return max(0.0, elapsed * (self.work - self.work_done) / self.work_done)

    def rate(self) -> float | None:
        """Output tokens a second of one stream in this cell, waiting included."""
        return self.cell_tokens / self.cell_seconds if self.cell_seconds else None


def line(event: e.Event) -> str | None:
    """One event as one plain line, or None where it is not worth one."""
    text = _line(event)
    return None if text is None else printable(text)


def _line(event: e.Event) -> str | None:
    match event:
        case e.RunStarted():
            done = f", {event.cells_done} done before" if event.cells_done else ""
            return (
                f"run {event.run}: {event.launches} launches, {event.cells} cells and evaluations"
                f"{done}"
                f" -> {event.folder}"
            )
        case e.LaunchStarting():
            return f"[{event.position}/{event.of}] {event.launch}: starting"
        case e.LaunchReady():
            model = f" ({event.model})" if event.model else ""
            return f"{event.launch}: ready after {event.seconds:.1f} s{model}"
        case e.LaunchEnded():
            return f"{event.launch}: {event.reason}" if event.reason else None
        case e.CellEnded():
            reason = f": {event.reason}" if event.reason else ""
            return (
                f"{event.launch} {event.cell}: {event.status},"
                f" {event.ok}/{event.requests} requests in {event.seconds:.1f} s{reason}"
            )
        case e.Note():
            return event.text
        case _:
            return None


@contextmanager
def plain(stream: IO[str]) -> Iterator[e.Watcher]:
    """Plain lines, one a launch and cell: for CI and pipes."""

    def watch(event: e.Event) -> None:
        text = line(event)
        if text is not None:
            print(text, file=stream, flush=True)

    yield watch


@contextmanager
def machine(stream: IO[str]) -> Iterator[e.Watcher]:
    """Every event as one JSON object a line."""

    def watch(event: e.Event) -> None:
        data = {"event": type(event).__name__, **asdict(event)}
        print(json.dumps(data, allow_nan=False), file=stream, flush=True)

    yield watch


@contextmanager
def live(console: Console) -> Iterator[e.Watcher]:
    """A bar over all cells, the launch and cell at work, tokens a second and the time left."""
    tally = Tally()
    bar = Progress(
        TextColumn("{task.completed:.0f}/{task.total:.0f} cells"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
    )
    task = bar.add_task("cells", total=1, left="")

    def status() -> Text:
        rate = tally.rate()
        speed = f"  {rate:.1f} tokens/s a stream" if rate else ""
        return Text(f"{tally.launch} {tally.cell} {tally.state}{speed}".strip())

    with Live(Group(bar, status()), console=console, refresh_per_second=4) as view:

        def watch(event: e.Event) -> None:
            tally.take(event)
            text = line(event)
            if text is not None and not isinstance(event, e.LaunchStarting):
                view.console.print(text, markup=False, highlight=False)
            eta = tally.eta_s()
            left = "" if eta is None else f"about {eta / 60:.0f} min {eta % 60:.0f} s left"
            bar.update(task, total=max(tally.cells, 1), completed=tally.cells_done, left=left)
            view.update(Group(bar, status()))

        yield watch
