"""A scripted engine with a fault, in a thread of its own, for tests that attach to it."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from tests.scripted_engine.engine import ScriptedEngine


class Threaded:
    """`with Threaded(engine) as url:` serves `engine` until the block is left."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        self._wait(self.engine.__aenter__())
        return self.engine.url

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wait(self.engine.__aexit__(kind, error, trace))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    def _wait(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=20)  # type: ignore[arg-type]
