"""A container's output, followed into a file by a thread that nothing waits for.

The stream of the Docker Engine may end, break or hang at any time (a silent container, a
restarted engine, a container that has gone): it is opened again from the last time that was
seen, what comes twice is left out, and stopping waits for it only so long.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Protocol

AGAIN_S = 0.2
LONGEST_AGAIN_S = 5.0
FINISH_S = 5.0


class LogStream(Protocol):
    """An iterator of frames that another thread can close."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


Open = Callable[[int | None, bool], LogStream]
"""(since in whole seconds of the epoch, follow) -> frames, each with its time in front."""


class LogCopy:
    """Frames in, the engine's own bytes into the file, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recent: deque[tuple[str, bytes]] = deque()
        self._again: Counter[bytes] = Counter()
        self.since: int | None = None
        self.lines = 0

    def reopen(self) -> None:
        """What has been seen since `since` will come again."""
        self._again = Counter(frame for _, frame in self._recent)

    def take(self, frame: bytes) -> None:
        stamp, blank, text = frame.partition(b" ")
        time_s = _epoch(stamp)
        if time_s is None or not blank:
            text = frame  # a driver without times: it cannot be told whether it came before
        elif self._again[frame] > 0:
            self._again[frame] -= 1
            return
        else:
            self._remember(stamp.decode(), frame, time_s)
        with self._path.open("ab") as file:
            file.write(text)
        self.lines += 1

    def _remember(self, stamp: str, frame: bytes, time_s: int) -> None:
        """Keep every frame of the last whole second: it is where a new stream begins."""
        self.since = max(self.since or 0, time_s)
        self._recent.append((stamp, frame))
        while self._recent and (_epoch(self._recent[0][0].encode()) or 0) < self.since:
            self._recent.popleft()


def _epoch(stamp: bytes) -> int | None:
    """Whole seconds of an RFC 3339 time in UTC; None when it is none."""
    try:
        text = stamp.decode()
        if not text.endswith("Z") or "T" not in text:
            return None
        return int(datetime.fromisoformat(text[:19] + "+00:00").timestamp())
    except ValueError:
        return None


class LogFollower:
    """Follows until `finish`, or until its container no longer runs and all was read."""

    def __init__(self, path: Path, open_stream: Open, running: Callable[[], bool]) -> None:
        path.touch()
        self.copy = LogCopy(path)
        self.problem: str | None = None  # why the stream last broke
        self._open = open_stream
        self._running = running
        self._stop = threading.Event()
        self._stream: LogStream | None = None
        self._thread = threading.Thread(target=self._follow, name="engine-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _follow(self) -> None:
        pause = AGAIN_S
        while not self._stop.is_set():
            before = self.copy.lines
            self._read(follow=True)
            if not self._running():
                return
            pause = AGAIN_S if self.copy.lines > before else min(pause * 2, LONGEST_AGAIN_S)
            self._stop.wait(pause)

    def _read(self, *, follow: bool) -> None:
        try:
            self.copy.reopen()
            stream = self._stream = self._open(self.copy.since, follow)
            for frame in stream:
                self.copy.take(frame)
                if self._stop.is_set() and follow:
                    return
        # Whatever broke (timeout, reset, a container that has gone): the log is read again.
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            stream_, self._stream = self._stream, None
            if stream_ is not None:
                _close(stream_)

    def finish(self, within_s: float = FINISH_S) -> bool:
        """Read what is left of a container that has ended; never waits longer than about
        twice `within_s`. False when the rest could not be read."""
        deadline = time.monotonic() + within_s
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._stop.set()
        stuck = self._stream
        if self._thread.is_alive() and stuck is not None:
            _close(stuck)
            self._thread.join(1.0)
        if self._thread.is_alive():
            return False
        self._stop.clear()
        rest = threading.Thread(target=self._read, kwargs={"follow": False}, daemon=True)
        rest.start()
        rest.join(within_s)
        return not rest.is_alive()


def _close(stream: LogStream) -> None:
    try:
        stream.close()
    except Exception:  # it is being given up; how it ends says nothing
        return
