"""What a run tells whoever watches it. The runner emits; a renderer decides how it looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SCORE = "score:"  # a cell's name in events where an evaluation's answers are scored


@dataclass(frozen=True)
class RunStarted:
    run: str
    folder: str
    launches: int
    cells: int
    cells_done: int  # already finished by an earlier start
    work_tokens: int  # weighted tokens still to be sent, for the ETA


@dataclass(frozen=True)
class LaunchStarting:
    launch: str
    side: str
    position: int
    of: int


@dataclass(frozen=True)
class LaunchReady:
    launch: str
    model: str | None
    seconds: float


@dataclass(frozen=True)
class LaunchEnded:
    launch: str
    reason: str | None  # None: as planned


@dataclass(frozen=True)
class CellStarted:
    launch: str
    cell: str
    requests: int


@dataclass(frozen=True)
class RequestDone:
    launch: str
    cell: str
    phase: str
    ok: bool
    output_tokens: int | None
    seconds: float
    work_tokens: int


@dataclass(frozen=True)
class CellEnded:
    launch: str
    cell: str
    status: str
    reason: str | None
    ok: int
    requests: int
    seconds: float


@dataclass(frozen=True)
class Note:
    text: str


Event = (
    RunStarted
    | LaunchStarting
    | LaunchReady
    | LaunchEnded
    | CellStarted
    | RequestDone
    | CellEnded
    | Note
)
Watcher = Callable[[Event], None]


def unwatched(event: Event) -> None:
    """A run that nobody watches."""
