"""One launch of the plan: as many starts of the engine as it takes to do what waits there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from qualify.engines.end_tokens import end_tokens
from qualify.engines.idle import SETTLE_S, look_after, memory_in_use
from qualify.engines.origin import origin_of
from qualify.engines.ready import wait_ready
from qualify.engines.resolve import ResolvedLaunch
from qualify.engines.server import RunningServer, launch
from qualify.errors import EngineError
from qualify.plan import CellPlan, EvalPlan, LaunchPlan, ProbePlan
from qualify.records.codec import to_dict
from qualify.run import events as e
from qualify.run.cell import Interrupted, measure_cell
from qualify.run.desk import Desk
from qualify.run.journal import Journal
from qualify.run.launch import Attempt
from qualify.run.plant import plant
from qualify.run.probes.lab import Lab
from qualify.run.shelf import Shelf

Item = CellPlan | EvalPlan | ProbePlan


class Launcher:
    """Starts engines for launches; `failures` says which could not be used, in words."""

    def __init__(
        self,
        journal: Journal,
        resolved: Mapping[str, ResolvedLaunch],
        shelf: Shelf,
        watch: e.Watcher,
        start_timeout_s: float,
        desk: Desk,
        lab: Lab,
        stop: asyncio.Event,
    ) -> None:
        self.journal, self.resolved, self.shelf = journal, resolved, shelf
        self.watch, self.start_timeout_s = watch, start_timeout_s
        self.desk, self.lab, self.stop = desk, lab, stop
        self.failures: list[str] = []

    async def do(self, item: LaunchPlan, waiting: list[Item]) -> None:
        """Measure `waiting`; when the engine dies in one of them, the rest get a new start."""
        while waiting and not self.stop.is_set():
            attempt_id, before = self.journal.next_attempt(item), len(waiting)
            resolved = self.resolved[item.side.name]
            await self.lab.before(self.journal.run_id, item, attempt_id, resolved)
            in_use = await asyncio.to_thread(memory_in_use)
            try:
                async with launch(resolved, self.journal.store.folder, attempt_id) as server:
                    attempt = await self._ready(item, attempt_id, server)
                    if attempt is not None:
                        await self._cells(attempt, waiting)
                        if len(waiting) == before and not self.stop.is_set():
                            raise EngineError(
                                f"The engine ended before a cell was measured: {server.exit}.",
                                f"Its last lines: {server.log_tail(5)}",
                            )
            except EngineError as error:
                self._give_up(item, attempt_id, waiting, error)
                return
            reason = "interrupted" if self.stop.is_set() else None
            if waiting and reason is None:
                reason = "the engine ended; the remaining cells get a new start"
            patience_s = 0.0 if self.stop.is_set() else SETTLE_S
            left = to_dict(await look_after(in_use, server.process, within_s=patience_s))
            said = {"exit": str(server.exit), "left": left}
            self.journal.launched(item, attempt_id, "stopped", said, reason)
            self.watch(e.LaunchEnded(attempt_id, reason))

    async def _ready(
        self, item: LaunchPlan, attempt_id: str, server: RunningServer
    ) -> Attempt | None:
        """Wait for the engine, write down what it is, plant the warm prompt; None on a stop."""
        waiting = asyncio.ensure_future(wait_ready(server, timeout_s=self.start_timeout_s))
        stopping = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return None
            ready = waiting.result()
        finally:
            for task in (waiting, stopping):
                task.cancel()
            await asyncio.gather(waiting, stopping, return_exceptions=True)
        info = await server.protocol.describe()
        able = await server.protocol.capabilities()
        ends = await asyncio.to_thread(end_tokens, server.resolved, info)
        origin = await asyncio.to_thread(origin_of, server, info, ends)
        said = {
            "ready": to_dict(ready),
            "capabilities": to_dict(able),
            "info": to_dict(info),
        }
        self.journal.launched(item, attempt_id, "started", {**origin, **said})
        self.watch(e.LaunchReady(attempt_id, info.model, ready.waited_s))
        attempt = Attempt(
            self.journal.run_id,
            attempt_id,
            item,
            server,
            able,
            info,
            self.journal.store,
            self.shelf,
            self.watch,
            self.stop,
            server.resolved.flush_patience_s,
            ends.ids if ends is not None else None,
        )
        if item.cells:
            attempt.planted = await plant(attempt, item.cells[0])
        return None if self.stop.is_set() else attempt

    async def _cells(self, attempt: Attempt, waiting: list[Item]) -> None:
        """Measure, evaluate, probe: until all is done, the engine has ended or the user stops."""
        while waiting and not self.stop.is_set() and attempt.server.alive():
            item = waiting[0]
            try:
                if isinstance(item, EvalPlan):
                    await self.desk.ask(attempt, item)
                elif isinstance(item, ProbePlan):
                    if not await self.lab.probe(attempt, item):
                        return
                else:
                    self.journal.end(await measure_cell(attempt, item))
            except Interrupted:
                return
            waiting.pop(0)

    def _give_up(
        self,
        item: LaunchPlan,
        attempt_id: str,
        waiting: list[Item],
        error: EngineError,
    ) -> None:
        """The engine could not be started: its cells fail, the campaign goes on."""
        text = f"{error.message} {error.remedy}".strip()
        self.failures.append(f"{attempt_id}: {text}")
        self.journal.launched(item, attempt_id, "failed", {}, text)
        self.watch(e.LaunchEnded(attempt_id, f"failed: {text}"))
        for cell in waiting:
            if isinstance(cell, EvalPlan):
                continue  # an evaluation without its answers is not-run by itself
            if isinstance(cell, ProbePlan):
                self.lab.fail(self.journal.run_id, item, attempt_id, cell, text)
                continue
            end = self.journal.fail(attempt_id, cell, f"the engine could not be used: {text}")
            self.watch(
                e.CellEnded(attempt_id, cell.id, "failed", "no engine", 0, end.requests, 0.0)
            )
