"""A rank that is gone or disagrees: the model is no longer whole, so nothing is served on."""

from __future__ import annotations

import signal

from specdec.errors import SpecdecError


class RanksBroken(SpecdecError):
    """One rank died, failed, or went its own way; the message names it."""


def how_it_ended(rank: int, pid: int, code: int) -> str:
    """A sentence about a process that is gone. ``code`` as ``Popen.returncode``."""
    if code >= 0:
        return f"Rank {rank} (process {pid}) ended with exit code {code}."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"Rank {rank} (process {pid}) was ended by {name}."
