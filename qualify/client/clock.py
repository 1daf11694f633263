"""The client's clocks, and its own lateness.

Intervals come from the monotonic clock alone (`time.perf_counter`); the wall clock only says
when something started. A DelayProbe measures how late the event loop runs, because every
read of every stream waits for that same loop: a late loop means late times.
"""

from __future__ import annotations

import asyncio
import gc
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType


def _wall() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Clock:
    """now(): monotonic seconds for every interval. wall(): ISO 8601 UTC, for reading only."""

    now: Callable[[], float] = time.perf_counter
    wall: Callable[[], str] = _wall


CLOCK = Clock()


class DelayProbe:
    """Measures the event loop's lateness: a timer due every interval_s, and when it ran.

    Use as `async with DelayProbe() as probe`. A selector rounds its waits up to a whole
    millisecond, so figures up to about 1.2 ms say nothing; larger ones say that the loop was
    busy (or the process not scheduled) and that reads of that moment may be stamped late by
    as much. A stall that begins and ends between two ticks is missed. A timer each 10 ms
    costs about 0.2% of a core.
    """

    def __init__(self, clock: Clock = CLOCK, interval_s: float = 0.01) -> None:
        self._now = clock.now
        self._interval_s = interval_s
        self._at = array("d")
        self._late = array("d")
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._cpu_start_s = 0.0
        self._start = 0.0
        self._cpu_share: float | None = None

    async def __aenter__(self) -> DelayProbe:
        self._loop = asyncio.get_running_loop()
        self._cpu_start_s = time.process_time()
        self._start = self._now()
        self._arm()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._cpu_share = self._share()

    def _arm(self) -> None:
        self._due = self._now() + self._interval_s
        self._handle = self._loop.call_later(self._interval_s, self._tick)

    def _tick(self) -> None:
        now = self._now()
        self._at.append(now)
        self._late.append(now - self._due)
        self._arm()

    def _share(self) -> float:
        wall = self._now() - self._start
        return (time.process_time() - self._cpu_start_s) / wall if wall > 0 else 0.0

    def worst_ms(self, since: float, until: float) -> float:
        """The worst lateness between two monotonic times, in ms.

        A tick that is overdue at `until` counts with the lateness that it has by now.
        """
        a, b = bisect_left(self._at, since), bisect_right(self._at, until)
        worst = max(self._late[a:b], default=0.0)
        # A tick that ran after `until` but was due before it: the loop was blocked across it.
        if b < len(self._at) and self._at[b] - self._late[b] < until:
            worst = max(worst, until - (self._at[b] - self._late[b]))
        elif b == len(self._at) and self._due < until:
            worst = max(worst, until - self._due)
        return 1000.0 * max(worst, 0.0)

    @property
    def cpu_share(self) -> float:
        """CPU seconds of this process per second of wall time, since the probe started."""
        return self._share() if self._cpu_share is None else self._cpu_share


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Keep the garbage collector out of a measured window.

    What lives already is frozen, collection is switched off, and both are undone afterwards.
    The client makes no cycles while streams run, so memory does not grow for want of it.
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
