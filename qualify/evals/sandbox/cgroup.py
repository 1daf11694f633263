"""One control group a program: memory and processes counted by the kernel, killed as one.

Version 1 or 2, where this user may make one; elsewhere `tree` watches by polling.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Group:
    """Folders of one group: one in version 2, one a controller in version 1."""

    folders: tuple[Path, ...]

    @property
    def entry_files(self) -> tuple[str, ...]:
        """Where a process writes its own id to enter."""
        return tuple(str(folder / "cgroup.procs") for folder in self.folders)

    def over_memory(self) -> bool:
        """Whether the kernel killed a process of it for memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                for line in _read(folder / name).splitlines():
                    word, _, number = line.partition(" ")
                    if word == "oom_kill" and number.strip().isdigit() and int(number) > 0:
                        return True
        return False

    def peak_bytes(self) -> int | None:
        for folder in self.folders:
            for name in ("memory.peak", "memory.max_usage_in_bytes"):
                text = _read(folder / name).strip()
                if text.isdigit():
                    return int(text)
        return None

    def pids(self) -> list[int]:
        return sorted({int(p) for f in self.folders for p in _read(f / "cgroup.procs").split()})

    def end(self, patience_s: float = 5.0) -> None:
        """Kill what is in it until nothing is, then remove it."""
        until = time.monotonic() + patience_s
        while (left := self.pids()) and time.monotonic() < until:
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        for folder in self.folders:
            for _ in range(50):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)  # the kernel lets go of the last process a moment later
                else:
                    break


def make_group(memory_bytes: int, processes: int) -> Group | None:
    """A fresh group with these limits; None where this user or kernel cannot."""
    name = f"qualify-{os.getpid()}-{secrets.token_hex(4)}"
    two = (ROOT / "cgroup.controllers").exists()
    settings: list[tuple[Path, dict[str, str]]]
    if two:
        limits = {"memory.max": memory_bytes, "pids.max": processes, "memory.swap.max": 0}
        settings = [(ROOT / name, {k: str(v) for k, v in limits.items()})]
    else:
        settings = [
            (ROOT / "memory" / name, {"memory.limit_in_bytes": str(memory_bytes)}),
            (ROOT / "pids" / name, {"pids.max": str(processes)}),
        ]
    made: list[Path] = []
    try:
        for folder, limits_of in settings:
            folder.mkdir()
            made.append(folder)
            for file, value in limits_of.items():
                optional = file == "memory.swap.max"  # absent without swap accounting
                if not optional or (folder / file).exists():
                    (folder / file).write_text(value)
    except OSError:
        Group(tuple(made)).end(0.0)
        return None
    return Group(tuple(made))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
