"""Which processes a run started, on disk, so that the next start can end what a kill left.

Each launch writes `FOLDER/owned/LAUNCH.json` before it starts anything and removes it once
everything has ended. Its marker is random and stands in the environment of the engine and of
all it starts (QUALIFY_LAUNCH): only processes that carry it are ever ended.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

MARKER = "QUALIFY_LAUNCH"


@dataclass(frozen=True)
class Owned:
    """One launch on disk. Start times are seconds since the epoch, as psutil gives them."""

    launch: str
    marker: str
    written_at: float
    harness_pid: int
    harness_started: float
    guard_pid: int | None = None
    guard_started: float | None = None
    engine_pid: int | None = None


@dataclass(frozen=True)
class Swept:
    """What became of one left-over launch: `ended` pids, or why it was let alone."""

    launch: str
    ended: tuple[int, ...]
    note: str


def new_owned(launch: str) -> Owned:
    """A fresh entry for this process, with a marker that nobody else has."""
    me = psutil.Process()
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", launch)
    return Owned(launch, f"{safe}.{secrets.token_hex(8)}", time.time(), me.pid, me.create_time())


def owned_path(folder: Path, owned: Owned) -> Path:
    return folder / "owned" / f"{owned.marker}.json"


def write_owned(folder: Path, owned: Owned) -> None:
    """Write it whole or not at all."""
    path = owned_path(folder, owned)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(owned), indent=1))
    part.replace(path)


def with_guard(owned: Owned, pid: int) -> Owned:
    try:
        return replace(owned, guard_pid=pid, guard_started=psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return replace(owned, guard_pid=pid)


def forget_owned(folder: Path, owned: Owned) -> None:
    path = owned_path(folder, owned)
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another launch's entry may still be there
        path.parent.rmdir()


def marked_processes(marker: str, not_before: float = 0.0) -> list[psutil.Process]:
    """Living processes that carry `marker` and did not start before `not_before`."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) != marker or process.status() == "zombie":
                continue
            if process.create_time() >= not_before - 2.0:  # psutil's clock ticks are coarse
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def sweep(folder: Path, *, grace_s: float = 5.0) -> list[Swept]:
    """End what earlier, dead harnesses left running for the run in `folder`.

    A launch whose harness still lives is let alone and named. Blocking: at most about
    `grace_s` and a second for each left-over launch.
    """
    results = []
    for path in sorted((folder / "owned").glob("*.json")):
        try:
            owned = Owned(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError) as error:
            results.append(Swept(path.stem, (), f"unreadable entry {path}: {error}"))
            continue
        if is_alive(owned.harness_pid, owned.harness_started):
            note = f"its harness (pid {owned.harness_pid}) still runs"
            results.append(Swept(owned.launch, (), note))
            continue
        left = marked_processes(owned.marker, owned.written_at)
        ended = end_processes(left, grace_s=grace_s)
        # Somebody in the tree may have started another process meanwhile.
        ended += end_processes(marked_processes(owned.marker, owned.written_at), grace_s=0.0)
        forget_owned(folder, owned)
        note = "ended" if ended else "nothing was left"
        results.append(Swept(owned.launch, tuple(ended), note))
    return results


def end_processes(processes: list[psutil.Process], *, grace_s: float) -> list[int]:
    """SIGTERM, `grace_s`, SIGKILL. psutil compares start times, so a reused pid is safe."""
    if grace_s > 0:
        for process in processes:
            _quietly(process.terminate)
        _, alive = psutil.wait_procs(processes, timeout=grace_s)
    else:
        alive = processes
    for process in alive:
        _quietly(process.kill)
    psutil.wait_procs(alive, timeout=1.0)
    return [process.pid for process in processes]


def _quietly(action: object) -> None:
    assert callable(action)
    with contextlib.suppress(psutil.Error):
        action()


def is_alive(pid: int, started: float) -> bool:
    """Whether that very process (not another with its number) still runs."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 0.05 and process.status() != "zombie"
    except psutil.Error:
        return False
