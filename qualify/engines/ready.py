"""Alive, ready and ours are three things; none of them is learnt by generating (rule 6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from qualify.engines.owned import MARKER
from qualify.engines.ports import listeners, who_listens
from qualify.engines.server import RunningServer
from qualify.errors import EngineError

FIRST_POLL_S = 0.05
LONGEST_POLL_S = 1.0


@dataclass(frozen=True)
class Ready:
    """How a launch became ready. `ours`: the listening socket was seen to belong to the tree
    just started; None where that cannot be seen (another user's, or attached)."""

    waited_s: float
    ours: bool | None
    model: str | None
    notes: tuple[str, ...] = ()


async def wait_ready(
    server: RunningServer,
    *,
    timeout_s: float,
    progress: Callable[[str, float], None] | None = None,
) -> Ready:
    """Wait until `server` says that it can serve, and prove that it is the one just started.

    `progress(detail, waited_s)` is called at each look. Raises EngineError when the process
    has ended (at once, with its last log lines), when another process owns the port, when it
    answers another model's name, when an attached one refuses us (401, 404, a redirect), or
    when `timeout_s` is over.
    """
    began = time.monotonic()
    pause, ours = FIRST_POLL_S, None
    detail = "nothing answers yet"
    while True:
        waited = time.monotonic() - began
        _refuse_dead(server, waited)
        state = await server.protocol.readiness()
        detail = state.detail
        if progress is not None:
            progress(detail, time.monotonic() - began)
        if state.alive and ours is None and server.process is not None:
            # Before its answers are believed: an old server may hold the port.
            ours = await asyncio.to_thread(_is_ours, server)
        if state.ready:
            _refuse_dead(server, time.monotonic() - began)
            break
        if state.refused is not None and server.process is None:
            # Somebody else's server: what it refuses now it will refuse in an hour.
            raise _failed(server, *state.refused)
        waited = time.monotonic() - began
        if waited >= timeout_s:
            raise _failed(
                server,
                f"was not ready after {waited:.0f} s: {detail}",
                "Raise start_timeout_s: in the campaign if it only needs longer.",
            )
        await asyncio.sleep(min(pause, max(0.0, timeout_s - waited)))
        pause = min(pause * 1.5, LONGEST_POLL_S)
    model, notes = await _model(server)
    return Ready(time.monotonic() - began, ours, model, notes)


async def _model(server: RunningServer) -> tuple[str | None, tuple[str, ...]]:
    info = await server.protocol.describe()
    planned = server.resolved.alias
    if info.model is None and server.process is None:
        raise _failed(
            server,
            f"does not answer as a {server.protocol.name} server does: it names no model",
            "Check the address, and the engine: that the campaign names.",
        )
    if planned is None or info.model is None or info.model == planned:
        return info.model, ()
    if server.argv is not None and planned in server.argv:
        raise _failed(
            server,
            f"answers as model {info.model!r}, and {planned!r} was started",
            "Another server took its place: stop it, or choose another port.",
        )
    return info.model, (f"the server calls its model {info.model!r}, the plan {planned!r}",)


def _is_ours(server: RunningServer) -> bool | None:
    """True: ours listens. None: cannot be seen. Raises EngineError for a foreign listener."""
    assert server.process is not None
    try:
        owners = listeners(server.port)
    except psutil.AccessDenied:
        return None
    if not owners:
        return None
    started = server.process
    if started.root_pid is None:
        return None  # it runs on another machine
    tree = _tree(started.root_pid)
    # Every one of them: a shared port would send some requests to somebody else's server.
    if all(o.pid in tree or _carries(o, started.marker) or started.forwards(o) for o in owners):
        return True
    raise _failed(
        server,
        f"is not what listens on port {server.port}: {who_listens(server.port)} is",
        "Stop that process, or take `port:` out of the engine definition.",
    )


def _tree(root: int) -> set[int]:
    try:
        return {root, *(p.pid for p in psutil.Process(root).children(recursive=True))}
    except psutil.Error:
        return {root}


def _carries(process: psutil.Process, marker: str) -> bool:
    try:
        return process.environ().get(MARKER) == marker
    except (psutil.Error, OSError):
        return False


def _refuse_dead(server: RunningServer, waited_s: float) -> None:
    if not server.alive():
        raise _failed(
            server,
            f"ended with {server.exit} after {waited_s:.1f} s, before it was ready",
            "Its last lines usually say why.",
        )


def _failed(server: RunningServer, what: str, remedy: str) -> EngineError:
    tail = server.log_tail()
    if tail:
        indented = "\n".join(f"    {line}" for line in tail.splitlines())
        remedy = f"{remedy} The end of {server.log_path}:\n{indented}"
    return EngineError(f"Engine {server.resolved.engine} ({server.launch_id}) {what}.", remedy)
