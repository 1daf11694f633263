"""The one thread that owns the model, and the doors through which the event loop reaches it.

The event loop never waits for compute: it hands a command to the thread and awaits a future, or
reads deltas that the thread sends back, one wake-up for each scheduler step. A fault of the core
ends every request with an error and the engine with a reason; it does not serve on with a state
that nobody vouches for.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from specdec import logs
from specdec.commands import Command, Doomed, EngineStopped, Flush, FlushBusy
from specdec.contract import DecodeRunner, RunnerInfo
from specdec.errors import RequestRefused
from specdec.job import Delta, JobSpec
from specdec.parallel.errors import RanksBroken
from specdec.reporter import Reporter
from specdec.scheduler import Scheduler
from specdec.stream import Stream
from specdec.tokenizer import Tokenizer

Result = TypeVar("Result")
GIVE_UP_S = 4.0  # how long a thread that was told of a failure may take to notice it


@dataclass
class Engine:
    """A runner, its scheduler and their thread. `load_runner` is called in that thread, because
    thread settings of the compute library belong to the thread that made them."""

    load_runner: Callable[[], DecodeRunner]
    tokenizer: Tokenizer
    reporter: Reporter = field(default_factory=Reporter)
    max_queued: int | None = None
    clock: Callable[[], float] = time.monotonic
    broken: str | None = None
    _scheduler: Scheduler | None = None
    _commands: queue.SimpleQueue[Command] = field(default_factory=queue.SimpleQueue)
    _door: threading.Lock = field(default_factory=threading.Lock)
    _streams: dict[str, Stream] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _flush: Flush | None = None
    _stopping: bool = False
    _doom: str | None = None
    on_broken: Callable[[], None] | None = None

    # -- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the model in the engine's thread. Raises what loading raises."""
        self._loop = asyncio.get_running_loop()
        loaded: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._main, args=(loaded,), name="specdec-engine", daemon=True
        )
        self._thread.start()
        await asyncio.wrap_future(loaded)

    async def stop(self, timeout_s: float = 5.0) -> bool:
        """Abort what runs and end the thread. False if it is still in a step after `timeout_s`."""

        def finish() -> None:
            self._stopping = True
            self.scheduler.abort(lambda rid: True, "The server is shutting down.")

        if self._thread is None:
            return True
        with contextlib.suppress(EngineStopped):
            self._post(finish)
        await asyncio.to_thread(self._thread.join, timeout_s)
        return not self._thread.is_alive()

    def fail(self, reason: str) -> None:
        """Something beside the thread broke, a rank of the model for one. Any thread may say so.

        The thread ends as after a failed step; if it hangs in one, the engine is broken all the
        same within `GIVE_UP_S`.
        """
        self._doom = self._doom or reason  # what came first is why the rest came
        with contextlib.suppress(EngineStopped):
            self._post(lambda: None)  # wakes it

        def give_up() -> None:
            if self.alive and not self._stopping:
                self.broken = f"The engine failed: {reason}"
                self._tell_broken()

        late = threading.Timer(GIVE_UP_S, give_up)
        late.daemon = True
        late.start()

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, once the engine has started. Other threads only read counts from it."""
        assert self._scheduler is not None, "the engine has not started"
        return self._scheduler

    @property
    def info(self) -> RunnerInfo:
        """Facts about the loaded model."""
        return self.scheduler.runner.info

    @property
    def alive(self) -> bool:
        """The thread runs and nothing broke."""
        return self.broken is None and self._thread is not None and self._thread.is_alive()

    # -- what the event loop asks -----------------------------------------------------------

    async def submit(self, specs: list[JobSpec]) -> Stream:
        """Queue requests, all or none. Raises RequestRefused or EngineStopped.

        Whoever gets the stream must close it, which aborts the requests that have not ended.
        """
        rids = [spec.rid for spec in specs]
        taken = [rid for rid in rids if rid in self._streams or rids.count(rid) > 1]
        if taken:
            raise RequestRefused(f"The rid '{taken[0]}' is already in use.", "Use another one.")
        stream = Stream(rids, self.discard)
        self._streams.update(dict.fromkeys(rids, stream))
        try:
            await self._call(lambda: self.scheduler.add(specs))
        except BaseException:
            stream.close()
            raise
        return stream

    async def abort(self, prefix: str) -> int:
        """End every request whose rid starts with `prefix` ("" for all). Returns their number."""
        return await self._call(
            lambda: self.scheduler.abort(lambda rid: rid.startswith(prefix), "Aborted by request.")
        )

    async def flush(self, timeout_s: float = 0.0) -> None:
        """Clear what requests left behind, waiting up to `timeout_s` for idleness.

        Raises FlushBusy.
        """
        asked = Flush(self.clock() + timeout_s, patient=timeout_s > 0)

        def begin() -> None:
            if self._flush is not None:
                raise FlushBusy("Another flush_cache is already in progress.\n")
            self._flush = asked
            self._try_flush()

        await self._call(begin)
        await asyncio.shield(asyncio.wrap_future(asked.reply))

    def discard(self, rids: Iterable[str], unfinished: frozenset[str]) -> None:
        """Forget requests; abort those that are unfinished."""
        for rid in rids:
            self._streams.pop(rid, None)
        if unfinished:
            with contextlib.suppress(EngineStopped):
                self._post(lambda: self.scheduler.abort(unfinished.__contains__, "Client left."))

    def _post(self, work: Callable[[], Result]) -> Future[Result]:
        command = Command(work)
        with self._door:
            if not self.alive or self._stopping:
                raise EngineStopped(self.broken or "The server is shutting down.")
            self._commands.put(command)
        return command.reply

    async def _call(self, work: Callable[[], Result]) -> Result:
        return await asyncio.wrap_future(self._post(work))

    # -- the engine's thread ----------------------------------------------------------------

    def _main(self, loaded: Future[None]) -> None:
        try:
            runner = self.load_runner()
        except BaseException as error:
            loaded.set_exception(error)
            return
        self._scheduler = Scheduler(
            runner, self.tokenizer, self._deliver, self.reporter, self.clock, self.max_queued
        )
        loaded.set_result(None)
        try:
            while not self._stopping:
                self._run_commands()
                if self._doom is not None:
                    raise Doomed(self._doom)
                if not self._scheduler.idle:
                    self._scheduler.step()
                if self._flush is not None:
                    self._try_flush()
        except (Doomed, RanksBroken) as error:
            self._break(f"The engine failed: {error}")
        except Exception as error:
            logs.logger.exception("The engine failed in a step.")
            self._break(f"The engine failed: {type(error).__name__}: {error}")
        finally:
            self._close()
            runner.close()

    def _break(self, reason: str) -> None:
        logs.logger.error(reason)
        self.broken = reason
        self.scheduler.fail_all(reason)
        self._tell_broken()

    def _tell_broken(self) -> None:
        if self.on_broken is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
                self._loop.call_soon_threadsafe(self.on_broken)

    def _run_commands(self) -> None:
        """Run what is asked; wait for the first question when there is nothing else to do."""
        wait = self.scheduler.idle and self._flush is None
        with contextlib.suppress(queue.Empty):
            while not self._stopping:
                self._commands.get(block=wait).run()
                wait = False

    def _close(self) -> None:
        """Answer what was asked too late, so that nobody waits for ever."""
        reason = self.broken or "The server is shutting down."
        with self._door:
            self._stopping = True
            while not self._commands.empty():
                self._commands.get().refuse(reason)
        if self._flush is not None:
            self._flush.reply.set_exception(EngineStopped(reason))

    def _try_flush(self) -> None:
        asked = self._flush
        assert asked is not None
        late = self.clock() >= asked.deadline_s
        if not self.scheduler.idle and asked.patient and not late:
            return
        self._flush = None
        if self.scheduler.flush():
            asked.reply.set_result(None)
        else:
            why = (
                "Timed out waiting for idle state.\n" if asked.patient else "Flush cache failed.\n"
            )
            asked.reply.set_exception(FlushBusy(why))

    def _deliver(self, news: list[tuple[str, Delta]]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._hand_out, news)

    def _hand_out(self, news: list[tuple[str, Delta]]) -> None:
        for rid, delta in news:
            stream = self._streams.get(rid)
            if stream is not None:
                stream.put(rid, delta)
