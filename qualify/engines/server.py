"""A server that is there, whoever started it: its address, its protocol, its process if ours."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from qualify.engines.docker_launch import launch_container
from qualify.engines.exits import EngineExit
from qualify.engines.factory import protocol_for
from qualify.engines.ports import claim
from qualify.engines.process import EngineProcess, log_tail
from qualify.engines.protocol import EngineProtocol
from qualify.engines.resolve import ResolvedLaunch
from qualify.engines.started import StartedEngine
from qualify.errors import EngineError


@dataclass(frozen=True)
class RunningServer:
    """What the rest of the harness holds while a launch lives.

    pid, log_path and argv are None for a server that somebody else started.
    """

    launch_id: str
    resolved: ResolvedLaunch
    base_url: str
    protocol: EngineProtocol
    argv: tuple[str, ...] | None
    log_path: Path | None
    process: StartedEngine | None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    @property
    def port(self) -> int:
        parts = urlsplit(self.base_url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    def alive(self) -> bool:
        """Whether the process runs; always true of an attached server, which is not ours."""
        return self.process is None or self.process.alive()

    @property
    def exit(self) -> EngineExit | None:
        """How the process ended; None while it runs or when it is not ours."""
        return self.process.exit if self.process is not None else None

    def log_tail(self, lines: int = 20) -> str:
        return log_tail(self.log_path, lines) if self.log_path is not None else ""

    async def stop(self) -> EngineExit | None:
        """End it in order; None and nothing done for an attached server."""
        return await self.process.stop() if self.process is not None else None


@asynccontextmanager
async def launch(
    resolved: ResolvedLaunch, folder: Path, launch_id: str
) -> AsyncIterator[RunningServer]:
    """Start (or attach to) one engine; stopped and awaited on the way out, however that is.

    `folder` gets engine-LAUNCH.log and, while it runs, owned/. It is not ready yet: see
    `ready.wait_ready`. Raises EngineError when it cannot be started at all.
    """
    if resolved.kind == "attach":
        assert resolved.url is not None
        protocol = protocol_for(resolved, resolved.url)
        try:
            yield RunningServer(launch_id, resolved, resolved.url, protocol, None, None, None)
        finally:
            await protocol.close()
        return
    if resolved.kind == "docker":
        async with launch_container(resolved, folder, launch_id) as (url, container):
            protocol = protocol_for(resolved, url)
            try:
                argv = resolved.argv_for(container.port)
                yield RunningServer(
                    launch_id, resolved, url, protocol, argv, container.log_path, container
                )
            finally:
                await protocol.close()
        return
    _check_module(resolved)
    port = claim(resolved.host, resolved.port)
    argv = resolved.argv_for(port)
    process = await EngineProcess.start(
        argv,
        env=resolved.env,
        cwd=resolved.cwd,
        folder=folder,
        launch_id=launch_id,
        grace_s=resolved.stop_grace_s,
    )
    base_url = f"http://{resolved.host}:{port}"
    protocol = protocol_for(resolved, base_url)
    try:
        yield RunningServer(
            launch_id, resolved, base_url, protocol, argv, process.log_path, process
        )
    finally:
        try:
            await process.stop()
        finally:
            await protocol.close()


def _check_module(resolved: ResolvedLaunch) -> None:
    """Say which extra is missing instead of letting the engine die of an ImportError."""
    if resolved.module is None or importlib.util.find_spec(resolved.module) is not None:
        return
    extra = f"pip install 'qualify[{resolved.extra}]'" if resolved.extra else "install it"
    raise EngineError(
        f"Engine {resolved.engine} needs the Python module {resolved.module}, which is missing.",
        f"Install it: {extra}." if resolved.extra else "Install it in this environment.",
    )
