"""An engine as a child process: started behind a guard, logged, stopped and always awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from qualify.engines.exits import EngineExit
from qualify.engines.owned import (
    MARKER,
    Owned,
    forget_owned,
    new_owned,
    with_guard,
    write_owned,
)
from qualify.errors import EngineError

GUARD = Path(__file__).with_name("guard.py")
TAIL_BYTES = 65536


def log_tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log, at most 64 KiB; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            data = file.read()
    except OSError:
        return ""
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-lines:])


class EngineProcess:
    """One running engine. Create it with `start`; `stop` is safe to call at any time."""

    def __init__(
        self, folder: Path, owned: Owned, log_path: Path, guard: asyncio.subprocess.Process
    ) -> None:
        self.folder = folder
        self.owned = owned
        self.log_path = log_path
        self.pid: int | None = None
        self.exit: EngineExit | None = None
        self._guard = guard
        self._failed_to_exec: str | None = None
        self._forced = False
        self._started = asyncio.Event()
        self._reader = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        argv: tuple[str, ...],
        *,
        env: dict[str, str],
        cwd: Path | None,
        folder: Path,
        launch_id: str,
        grace_s: float,
    ) -> EngineProcess:
        """Start `argv` with `env` laid over this process's own environment.

        Its output is appended to FOLDER/engine-LAUNCH.log by the kernel, so nothing here can
        block it. Raises EngineError when the command cannot be executed at all.
        """
        owned = new_owned(launch_id)
        write_owned(folder, owned)  # before anything starts: a kill right after loses nothing
        log_path = folder / f"engine-{launch_id.replace('/', '-')}.log"
        try:
            with log_path.open("ab") as log:
                guard = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", str(GUARD), "--grace", str(grace_s), "--"),
                    *argv,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    env={**os.environ, **env, MARKER: owned.marker},
                    cwd=cwd,
                    start_new_session=True,  # Ctrl-C in the terminal is not the engine's
                )
        except OSError as error:
            forget_owned(folder, owned)
            raise EngineError(
                f"The engine cannot be started in {cwd or Path.cwd()}: {error.strerror}.",
                "Check cwd: in the engine definition.",
            ) from error
        process = cls(folder, with_guard(owned, guard.pid), log_path, guard)
        write_owned(folder, process.owned)
        try:
            await process._started.wait()
        except asyncio.CancelledError:
            await process.stop()
            raise
        if process._failed_to_exec is not None:
            reason = process._failed_to_exec
            await process.stop()
            raise EngineError(
                f"The engine's command cannot be executed: {reason}.",
                f"`{argv[0]}` must exist and be executable; see argv: in the definition.",
            )
        return process

    async def _listen(self) -> None:
        """Read what the guard says until it ends."""
        assert self._guard.stdout is not None
        code: int | None = None
        while line := (await self._guard.stdout.readline()).decode("utf-8", "replace").strip():
            word, _, rest = line.partition(" ")
            if word == "pid":
                self.pid = int(rest)
                self.owned = replace(self.owned, engine_pid=self.pid)
                self._started.set()
            elif word == "exit":
                code = int(rest)
            elif word == "killed":
                self._forced = True
            elif word == "failed":
                self._failed_to_exec = rest
        await self._guard.wait()
        name = _signal_name(-code) if code is not None and code < 0 else None
        self.exit = EngineExit(code if name is None else None, name, self._forced)
        self._started.set()

    @property
    def guard_pid(self) -> int:
        return self._guard.pid

    @property
    def root_pid(self) -> int | None:
        """Every process of the engine is below it."""
        return self._guard.pid

    @property
    def marker(self) -> str:
        return self.owned.marker

    def forwards(self, process: psutil.Process) -> bool:
        """Nothing stands between a process and its port."""
        return False

    def facts(self) -> dict[str, Any]:
        """Nothing that the launch's record does not hold already."""
        return {}

    def alive(self) -> bool:
        return self.exit is None

    async def wait(self) -> EngineExit:
        """Until it has ended by itself or by `stop`."""
        await asyncio.shield(self._reader)
        assert self.exit is not None
        return self.exit

    async def stop(self) -> EngineExit:
        """SIGTERM, the grace time, SIGKILL to the group and all that it left; then awaited.

        When the waiting itself is cancelled (a second Ctrl-C) the kill comes at once.
        """
        self._tell(b"stop\n")
        try:
            ended = await self.wait()
        except asyncio.CancelledError:
            self._tell(b"kill\n")
            await self.wait()
            forget_owned(self.folder, self.owned)
            raise
        forget_owned(self.folder, self.owned)
        return ended

    def _tell(self, word: bytes) -> None:
        stdin = self._guard.stdin
        if stdin is not None and not stdin.is_closing() and self.exit is None:
            # It may just have ended: the reader will see that.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stdin.write(word)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)
