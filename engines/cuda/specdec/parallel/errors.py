"""A rank that is gone or disagrees: the model is no longer whole, so nothing is served on."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from specdec.errors import SpecdecError


class RanksBroken(SpecdecError):
    """One rank died, failed, or went its own way; the message names it."""


@dataclass(frozen=True)
class Ended:
    """A rank's process is gone since ``at_s`` on the monotonic clock. ``code`` as
    ``Popen.returncode``: below zero for a signal."""

    rank: int
    pid: int
    code: int
    at_s: float

    @classmethod
    def now(cls, rank: int, pid: int, code: int) -> Ended:
        return cls(rank, pid, code, time.monotonic())

    @property
    def sentence(self) -> str:
        who = f"Rank {self.rank} (process {self.pid})"
        if self.code >= 0:
            return f"{who} ended with exit code {self.code}."
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = f"signal {-self.code}"
        return f"{who} was ended by {name}."


def cause(ended: list[Ended], error: Exception) -> Exception:
    """Why a step broke: the rank that was killed, as the others fail for want of it; else what one
    of them said; else the first that ended; else the error itself."""
    killed = [end for end in ended if end.code < 0]
    if not killed and isinstance(error, RanksBroken):
        return error
    first = min(killed or ended, key=lambda end: end.at_s, default=None)
    return error if first is None else RanksBroken(first.sentence, "Start again.")
