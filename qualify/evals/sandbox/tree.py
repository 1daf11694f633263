"""A started process and everything below it: how much memory it holds, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from qualify.evals.sandbox.cgroup import Group

PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessCage:
    """A cage that is a child process of ours; see `nouns.Cage`.

    Without a group the resident memory of all descendants is polled, which a program that
    fills it faster than it is read can pass for a moment, up to its address-space limits.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], memory_bytes: int, group: Group | None
    ) -> None:
        self._process, self._memory_bytes, self._group = process, memory_bytes, group
        self._peak: int | None = None

    def write(self, data: bytes) -> None:
        """Blocks until all is read or the process is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(data)
            self._process.stdin.close()

    def fileno(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def over_memory(self) -> bool:
        if self._group is not None:
            return self._group.over_memory()
        used = sum(map(resident_bytes, descendants(self._process.pid)))
        self._peak = max(self._peak or 0, used)
        return used > self._memory_bytes

    def peak_bytes(self) -> int | None:
        return self._group.peak_bytes() if self._group is not None else self._peak

    def _settle(self, patience_s: float) -> None:
        if patience_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)

    def kill(self, patience_s: float = 0.0) -> int | None:
        self._settle(patience_s)
        below = descendants(self._process.pid)
        ended = self._process.poll()
        self._process.kill()
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if self._group is not None:
            self._group.end()
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError, ValueError):
                    pipe.close()
        return ended if ended is not None else status


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, itself included, from one look at /proc; [] where none is."""
    children: dict[int, list[int]] = {}
    try:
        names = [p.name for p in Path("/proc").iterdir() if p.name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            stat = Path(f"/proc/{name}/stat").read_bytes()
            parent = int(stat.rpartition(b")")[2].split()[1])  # a name may hold any character
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(name))
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        todo += children.get(current, [])
    return found


def resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0
