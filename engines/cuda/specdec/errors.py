"""The few ways the engine says no: each is one sentence and one remedy."""

from __future__ import annotations


class SpecdecError(Exception):
    """Something the operator or the client can act on.

    ``message`` says what is wrong, ``remedy`` what to do about it.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.message = message
        self.remedy = remedy


class CheckpointError(SpecdecError):
    """A checkpoint that must not be served; ``problems`` names every tensor at fault."""

    def __init__(self, message: str, remedy: str, problems: tuple[str, ...] = ()) -> None:
        listed = "".join(f"\n  - {line}" for line in problems)
        super().__init__(message + listed + ("\n" if problems else ""), remedy)
        self.problems = problems


class RequestRefused(SpecdecError):
    """A request that can never be served as asked (a 400 at the HTTP surface)."""


class QueueFull(RequestRefused):
    """The queue is at its limit: a request that may be sent again later (a 503)."""


class PoolExhausted(SpecdecError):
    """No pages or no slot are left for this step: retract a sequence and try again."""
