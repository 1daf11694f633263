"""The server process: bind, load, say ready, serve, and on SIGTERM finish or abort and exit 0.

Bounds after SIGTERM or SIGINT: running requests get `drain_timeout_s` to finish, then they are
aborted; their connections and the engine's thread get `CLOSE_S` each; then the process ends,
whatever still hangs. A second signal skips the waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import uvicorn

from specdec import logs
from specdec.contract import DecodeRunner
from specdec.engine import Engine
from specdec.errors import SpecdecError
from specdec.http.state import ServerState
from specdec.logs import logger
from specdec.metrics import Metrics
from specdec.reporter import Reporter
from specdec.server import build_app
from specdec.settings import ServeSettings
from specdec.startup import log_startup
from specdec.tokenizer import Tokenizer, TokenizerError

CLOSE_S = 3.0


def run(settings: ServeSettings, load_runner: Callable[[], DecodeRunner] | None = None) -> int:
    """Serve until told to stop. Returns the process's exit code: 0 stopped, 1 failed, 2 refused.

    `load_runner` is called in the engine's thread; None loads the checkpoint of the settings.
    """
    logs.configure(settings.log_level, 0 if settings.tp_size > 1 else None)
    try:
        code, clean = asyncio.run(_serve(settings, load_runner))
    except KeyboardInterrupt:
        return 0
    if not clean:
        # A thread is stuck in a step; waiting for it would break the promise of a bounded end.
        logger.error("The engine's thread did not end in time; leaving it.")
        sys.stderr.flush()
        os._exit(code)
    return code


async def _serve(
    settings: ServeSettings, load_runner: Callable[[], DecodeRunner] | None
) -> tuple[int, bool]:
    """(exit code, whether everything ended cleanly)."""
    stop = _Stop()
    stop.listen()
    try:
        listener = bind(settings.host, settings.port)
    except OSError as error:
        return _cannot_listen(settings, error), True
    with listener:
        try:
            tokenizer = Tokenizer.load(settings.model)
            metrics = Metrics(settings.model_name) if settings.enable_metrics else None
            engine = _engine(settings, load_runner, tokenizer, metrics)
            logger.info(f"Loading {settings.model}, mode {settings.mode}.")
            if not await stop.unless_told(engine.start()):
                return 0, False
        except (SpecdecError, TokenizerError) as error:
            logger.error(str(error))
            return 2, True
        port = listener.getsockname()[1]
        state = ServerState(replace(settings, port=port), engine, tokenizer, metrics)
        log_startup(settings, engine)
        try:
            return await _listen(state, listener, stop)
        except OSError as error:
            return _cannot_listen(settings, error), await engine.stop(CLOSE_S)


def _cannot_listen(settings: ServeSettings, error: OSError) -> int:
    logger.error(
        f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. Free the "
        "port or choose another with --port (0 picks a free one)."
    )
    return 2


def _load(settings: ServeSettings, on_broken: Callable[[str], None]) -> DecodeRunner:
    # Imported in the engine's thread: the model library is heavy and only this thread uses it.
    from specdec.parallel.launch import load_runner

    options = settings.runner_options()
    return load_runner(settings.model, options, on_broken, settings.log_level)


def _engine(
    settings: ServeSettings,
    load_runner: Callable[[], DecodeRunner] | None,
    tokenizer: Tokenizer,
    metrics: Metrics | None,
) -> Engine:
    reporter = Reporter(
        settings.decode_log_interval, histograms=metrics.histograms if metrics else None
    )

    def load() -> DecodeRunner:
        return load_runner() if load_runner else _load(settings, engine.fail)

    engine = Engine(load, tokenizer, reporter, settings.max_queued_requests)
    return engine


async def _listen(state: ServerState, listener: socket.socket, stop: _Stop) -> tuple[int, bool]:
    engine, settings = state.engine, state.settings
    engine.on_broken = stop.set
    config = uvicorn.Config(
        build_app(state),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=int(CLOSE_S),
        timeout_keep_alive=75,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    up = asyncio.create_task(server.up.wait())
    await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
    up.cancel()
    if serving.done():
        serving.result()
    host, port = listener.getsockname()[:2]
    logger.info(f"Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
    logger.info(logs.READY_LINE)
    await stop.wait()
    state.draining = True
    if engine.alive:
        logger.info(
            f"Shutting down: {engine.scheduler.load.running} running and "
            f"{engine.scheduler.load.queued} waiting requests have {settings.drain_timeout_s:g} s."
        )
        await _drained(engine, settings.drain_timeout_s, stop)
    clean = await engine.stop(CLOSE_S)
    server.should_exit = True
    await serving
    logger.info("Stopped.")
    return (1 if engine.broken else 0), clean


async def _drained(engine: Engine, timeout_s: float, stop: _Stop) -> None:
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while engine.alive and not engine.scheduler.idle and not stop.twice:
        if asyncio.get_running_loop().time() >= deadline_s:
            logger.warning("Time is up: what still runs is aborted.")
            return
        await asyncio.sleep(0.02)


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket bound to an address and not yet listening. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's delay off only where it reads TCP there;
    # without it every event of a stream could come 40 ms late.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Bound but not listening: clients are refused until the model is there, and a port that a
        # running server holds is noticed now rather than after loading.
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


class _Stop:
    """SIGTERM and SIGINT as something to await; also set when the engine breaks."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        self._times = 0

    def listen(self) -> None:
        """Take the signals over from Python's defaults."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.set)

    def set(self) -> None:
        """Stop."""
        self._times += 1
        self._told.set()

    @property
    def twice(self) -> bool:
        """Told more than once: wait no longer."""
        return self._times > 1

    async def wait(self) -> None:
        """Until told to stop."""
        await self._told.wait()

    async def unless_told(self, work: Coroutine[Any, Any, None]) -> bool:
        """Await `work`; False when told to stop first. Raises what `work` raises."""
        task = asyncio.create_task(work)
        told = asyncio.create_task(self._told.wait())
        await asyncio.wait({task, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if task.done():
            task.result()
            return True
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return False


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, which would end the process by the signal."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `_Stop`."""
        yield
