"""How many CPU threads a pass runs on.

A pass of a few rows is over in a couple of milliseconds and has some fifty products. On several
threads each of them ends in a barrier, and where anything else wants the same cores (a client on
the same machine, say) a barrier waits for the scheduler's next turn, milliseconds each. One thread
has no barriers and reads weights nearly as fast. Wide passes, prefill above all, use every thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

NARROW_ROWS = 16


class Threads:
    """Sets torch's intra-op threads for the calling thread, only when the number changes."""

    def __init__(self, device: torch.device, wide: int) -> None:
        self._wide = wide if device.type == "cpu" else None
        self._now: int | None = None

    def use_for(self, rows: int) -> None:
        """Called before the work of a pass of ``rows`` rows."""
        if self._wide is None:
            return
        self._set(1 if rows <= NARROW_ROWS else self._wide)

    @contextmanager
    def one(self) -> Iterator[None]:
        """One thread for a run of products too small to share, then what was before."""
        before = self._now
        if self._wide is not None:
            self._set(1)
        yield
        if before is not None:
            self._set(before)

    def _set(self, wanted: int) -> None:
        if wanted != self._now:
            torch.set_num_threads(wanted)
            self._now = wanted
