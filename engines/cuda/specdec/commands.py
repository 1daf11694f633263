"""What the event loop hands to the engine's thread, and the ways in which it is turned down."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


class EngineStopped(RuntimeError):
    """The engine takes no more requests: it is shutting down, or it broke."""


class FlushBusy(RuntimeError):
    """A flush that could not be done; the message is what the client reads."""


class Doomed(RuntimeError):
    """Somebody said that the engine is broken; the message says what."""


@dataclass
class Command:
    """Work for the engine's thread, and where its result goes."""

    work: Callable[[], Any]
    reply: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        """Do it, unless whoever asked has gone meanwhile."""
        if not self.reply.set_running_or_notify_cancel():
            return
        try:
            self.reply.set_result(self.work())
        except Exception as error:
            self.reply.set_exception(error)

    def refuse(self, reason: str) -> None:
        """Answer without doing it."""
        if self.reply.set_running_or_notify_cancel():
            self.reply.set_exception(EngineStopped(reason))


@dataclass
class Flush:
    deadline_s: float
    patient: bool
    reply: Future[None] = field(default_factory=Future)
