"""An engine as a container: created with labels, logged, stopped, and removed once its log is
saved. The counterpart of `process.EngineProcess`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from qualify.engines.docker_client import connect, docker_py, reason
from qualify.engines.docker_image import LocalImage
from qualify.engines.docker_logs import LogFollower, LogStream
from qualify.engines.docker_start import Created, start_container
from qualify.engines.exits import EngineExit
from qualify.engines.resolve import ResolvedLaunch

KILLED_WITHIN_S = 30.0
AGAIN_S = 1.0


class EngineContainer:
    """One running container. Create it with `start`; `stop` is safe to call at any time."""

    def __init__(self, created: Created, log_path: Path, grace_s: float) -> None:
        self.created = created
        self.log_path = log_path
        self.exit: EngineExit | None = None
        self.notes = created.notes
        self._grace_s = grace_s
        self._ended = threading.Event()
        self._hurry = threading.Event()
        self._ending: asyncio.Task[None] | None = None
        # The follower and the waiter each have a connection of their own.
        self._logs = LogFollower(log_path, self._open_log, lambda: not self._ended.is_set())
        self._logs.start()
        threading.Thread(target=self._wait, name="engine-wait", daemon=True).start()

    @classmethod
    async def start(
        cls,
        resolved: ResolvedLaunch,
        image: LocalImage,
        *,
        port: int,
        folder: Path,
        launch_id: str,
    ) -> EngineContainer:
        """Create and start it; what a failed start leaves is removed. Raises EngineError."""
        log_path = folder / f"engine-{launch_id.replace('/', '-')}.log"
        work = asyncio.ensure_future(
            asyncio.to_thread(start_container, resolved, image, port, folder, launch_id)
        )
        try:
            created = await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread cannot be cancelled: see what it made, and undo it.
            started = cls(await work, log_path, resolved.stop_grace_s)
            started._hurry.set()
            await started.stop()
            raise
        return cls(created, log_path, resolved.stop_grace_s)

    @property
    def port(self) -> int:
        """On its own machine, at 127.0.0.1."""
        return self.created.port

    @property
    def marker(self) -> str:
        return self.created.owned.marker

    @property
    def pid(self) -> int | None:
        """The main process as the machine numbers it; None where that is another machine."""
        return self.created.pid

    @property
    def root_pid(self) -> int | None:
        return self.created.pid

    def alive(self) -> bool:
        return self.exit is None

    def forwards(self, process: psutil.Process) -> bool:
        """Whether `process` is Docker's own proxy that hands this container's port on."""
        try:
            words = process.cmdline()
        except psutil.Error:
            return False
        address = self.created.address
        return bool(words) and words[0].endswith("docker-proxy") and address in words

    def facts(self) -> dict[str, Any]:
        """What ran, for the launch's record."""
        return {**self.created.facts, "notes": list(self.notes)}

    async def stop(self) -> EngineExit:
        """SIGTERM, the grace time, SIGKILL; the log saved; removed. Awaited in any case.

        When the waiting itself is cancelled (a second Ctrl-C) the kill comes at once.
        """
        if self._ending is None:
            self._ending = asyncio.ensure_future(asyncio.to_thread(self._end))
        try:
            await asyncio.shield(self._ending)
        except asyncio.CancelledError:
            self._hurry.set()
            await self._ending
            raise
        assert self.exit is not None
        return self.exit

    def _wait(self) -> None:
        """Until it has ended: a call without a time limit, made again when it breaks."""
        while not self._ended.is_set():
            try:
                client = connect()
                try:
                    client.api.wait(self.created.id, timeout=None)
                    self.exit = _exit_of(client, self.created.id)
                finally:
                    client.close()
            except docker_py().errors.NotFound:
                self.exit = EngineExit(None, None, note="somebody removed the container")
            except Exception:  # the Docker Engine restarts, or a proxy gave up: ask again
                self._ended.wait(AGAIN_S)
                continue
            if self.exit is not None:
                self._ended.set()

    def _open_log(self, since: int | None, follow: bool) -> LogStream:
        client = connect()
        stream = client.api.logs(
            self.created.id,
            stdout=True,
            stderr=True,
            stream=True,
            follow=follow,
            timestamps=True,
            since=since,
        )
        return _LogStream(client, stream)

    def _end(self) -> None:
        """Blocking. Nothing here raises: the campaign's results are on disk already."""
        forced = False
        try:
            client = connect()
        except Exception as error:  # no engine to ask: say what is left, and where
            note = f"container {self.created.name} may still run: {error}"
            self.exit = self.exit or EngineExit(None, None, note=note)
            self._ended.set()
            self._logs.finish(0.5)
            return
        with _closing(client):
            if not self._ended.is_set() and not self._hurry.is_set():
                _signal(client, self.created.id, "SIGTERM")
                self._patience()
            if not self._ended.is_set():
                forced = True
                _signal(client, self.created.id, "SIGKILL")
                self._ended.wait(KILLED_WITHIN_S)
            if self.exit is None:
                self.exit = EngineExit(None, None, note="it could not be ended")
                self._ended.set()
            if forced:
                self.exit = self.exit.as_forced()
            if not self._logs.finish():
                self.notes = (*self.notes, "the end of the log could not be read")
            _remove(client, self.created.id)

    def _patience(self) -> None:
        """The grace time, cut short by an end or by a second Ctrl-C."""
        left = self._grace_s
        while left > 0 and not self._hurry.is_set():
            if self._ended.wait(min(0.1, left)):
                return
            left -= 0.1


def _exit_of(client: Any, container_id: str) -> EngineExit | None:
    """How it ended; None while it runs. Status first: Health may lie after an exit."""
    state: Mapping[str, Any] = client.api.inspect_container(container_id)["State"]
    if state.get("Status") in ("running", "restarting", "paused", "removing", "created"):
        return None
    said = str(state.get("Error") or "") or None
    return EngineExit(int(state["ExitCode"]), None, oom=bool(state.get("OOMKilled")), note=said)


def _signal(client: Any, container_id: str, name: str) -> None:
    try:
        client.api.kill(container_id, signal=name)
    except docker_py().errors.APIError as error:
        if error.status_code not in (404, 409):  # gone, or not running any more
            raise


def _remove(client: Any, container_id: str) -> None:
    try:
        client.api.remove_container(container_id, force=True, v=True)
    except docker_py().errors.APIError as error:
        if error.status_code not in (404, 409):  # gone, or being removed
            raise RuntimeError(reason(error)) from error


class _LogStream:
    """Frames of one stream; closing it closes its connection."""

    def __init__(self, client: Any, stream: Any) -> None:
        self._client, self._stream = client, stream

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._client.close()


class _closing:
    def __init__(self, client: Any) -> None:
        self._client = client

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._client.close()
