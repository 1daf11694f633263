"""The launch loop: start, measure cell by cell, and come through anything.

One failed cell or launch never ends the campaign. A killed run loses at most the cell in
flight; a resumed one keeps its records as superseded and measures it whole under a new
attempt (rule 13). Nothing that was started is left running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qualify.engines.end_tokens import end_tokens
from qualify.engines.idle import SETTLE_S, look_after, memory_in_use
from qualify.engines.origin import origin_of
from qualify.engines.owned import sweep
from qualify.engines.ready import wait_ready
from qualify.engines.resolve import ResolvedLaunch
from qualify.engines.server import RunningServer, launch
from qualify.errors import CellError, EngineError, ExitCode, UsageError
from qualify.evals.planned import Bench
from qualify.plan import CellPlan, EvalPlan, LaunchPlan, Plan, ProbePlan
from qualify.planning.identity import refuse_changed
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.tokens import Tokenizer
from qualify.records.codec import to_dict
from qualify.records.store import META, Store, read_plan
from qualify.run import events as e
from qualify.run.cell import Interrupted, measure_cell
from qualify.run.desk import Desk
from qualify.run.journal import Journal
from qualify.run.launch import Attempt
from qualify.run.plant import plant
from qualify.run.probes.lab import Lab
from qualify.run.sending import work_of
from qualify.run.shelf import Build, Shelf
from qualify.run.signals import stopping_on_signals
from qualify.run.start import forget_start, left_containers, write_start


@dataclass(frozen=True)
class RunOutcome:
    """measured and failed count the cells that stand."""

    folder: Path
    interrupted: bool
    measured: int
    failed: int
    engine_failures: tuple[str, ...]
    answered: int = 0  # problems of evaluations

    @property
    def exit_code(self) -> ExitCode | None:
        """None: something was measured, so the verdicts decide."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.measured == 0 and not self.answered and self.engine_failures:
            return ExitCode.ENGINE_FAILED
        return None


def run_campaign(
    plan: Plan,
    *,
    out: Path,
    resume: bool,
    resolved: Mapping[str, ResolvedLaunch],
    build: Build,
    watch: e.Watcher = e.unwatched,
    start_timeout_s: float = 1800.0,
    campaign_file: Path | None = None,
    bench: Bench | None = None,
    tokenizer: Callable[[], Tokenizer | None] = lambda: None,
) -> RunOutcome:
    """Carry out `plan` in the folder `out`, or go on with what is there when `resume`.

    `resolved` has the command of each side by its name; `build` makes the prompts of a spec.
    `bench` holds the problems of the plan's evaluations, `tokenizer` what their prompts need;
    answers are scored when every engine has stopped.
    Blocks; SIGINT and SIGTERM stop it in seconds (a second one at once), keeping what was
    measured. Raises UsageError when `out` holds another plan or is in use.
    """
    made = not out.exists()
    if not resume and (out / META).exists():
        raise UsageError(
            f"{out} already holds a run.", "Add --resume to go on with it, or choose another --out."
        )
    if resume:
        refuse_changed(read_plan(out), plan)
    with Store(out) as store:
        for left in (*left_containers(resolved), *sweep(out)):
            watch(e.Note(f"left by an earlier start of {left.launch}: {left.note}"))
        if not resume or not (out / META).exists():
            # Without run.json an earlier start was killed before it had said all of this.
            write_start(store, plan, campaign_file)
        journal = Journal(store, store.folder.name)
        for text in journal.damage:
            watch(e.Note(f"{text}: that line is left out"))
        desk = Desk(plan, store, bench or Bench(), tokenizer)
        lab = Lab(store)
        for text in (*desk.damage, *lab.damage):
            watch(e.Note(f"{text}: that line is left out"))
        runner = _Runner(plan, journal, resolved, Shelf(build), watch, start_timeout_s, desk, lab)
        try:
            return asyncio.run(runner.run())
        except UsageError:
            forget_start(out, made=made)
            raise


Item = CellPlan | EvalPlan | ProbePlan


class _Runner:
    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        resolved: Mapping[str, ResolvedLaunch],
        shelf: Shelf,
        watch: e.Watcher,
        start_timeout_s: float,
        desk: Desk,
        lab: Lab,
    ) -> None:
        self.plan, self.journal, self.resolved = plan, journal, resolved
        self.shelf, self.watch, self.start_timeout_s = shelf, watch, start_timeout_s
        self.desk, self.lab = desk, lab
        self.stop = asyncio.Event()
        self.failures: list[str] = []

    async def run(self) -> RunOutcome:
        pending = [(item, self.journal.pending(item)) for item in self.plan.launches]
        todo = [(item, cells) for item, cells in pending if cells or self._extra(item)]
        open_cells = [cell for _, cells in todo for cell in cells]
        total = sum(len(item.cells) for item in self.plan.launches)
        folder = self.journal.store.folder
        self.watch(
            e.RunStarted(
                self.journal.run_id,
                str(folder),
                len(todo),
                total,
                total - len(open_cells),
                sum(_work(cell) for cell in open_cells),
            )
        )
        with stopping_on_signals(self.stop):
            # Everything is built before any engine starts: no prompt is made on the clock.
            for cell in open_cells:
                for spec in (cell.prompts, cell.warmup):
                    if spec is not None and not self.stop.is_set():
                        await self._build(spec)
            for probe in (p for item, _ in todo for p in self.lab.pending(item)):
                for spec in probe.prompts:
                    if not self.stop.is_set():
                        await self._build(spec)
            for position, (item, cells) in enumerate(todo, start=1):
                if not self.stop.is_set():
                    self.watch(e.LaunchStarting(item.id, item.side.name, position, len(todo)))
                    await self._launch(item, [*cells, *self._extra(item)])
            await asyncio.to_thread(self.desk.grade, self.watch, self.stop.is_set)
        return RunOutcome(
            folder,
            self.stop.is_set(),
            self.journal.count("finished"),
            self.journal.count("failed"),
            tuple(self.failures),
            self.desk.answered(),
        )

    def _extra(self, item: LaunchPlan) -> list[EvalPlan | ProbePlan]:
        """What comes after the cells; probes last, because they may harm the server."""
        return [*self.desk.pending(item), *self.lab.pending(item)]

    async def _build(self, spec: PromptSpec) -> None:
        """What cannot be built is the campaign's fault, and nothing has been measured yet."""
        try:
            await asyncio.to_thread(self.shelf.get, spec)
        except CellError as error:
            raise UsageError(error.message, error.remedy) from error

    async def _launch(self, item: LaunchPlan, waiting: list[Item]) -> None:
        """Measure `waiting`; when the engine dies in one of them, the rest get a new start."""
        while waiting and not self.stop.is_set():
            attempt_id, before = self.journal.next_attempt(item), len(waiting)
            in_use = await asyncio.to_thread(memory_in_use)
            try:
                async with launch(
                    self.resolved[item.side.name], self.journal.store.folder, attempt_id
                ) as server:
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


def _work(cell: CellPlan) -> int:
    """Weighted tokens of everything a cell sends, for the time that is left."""
    sets = [s for s in (cell.prompts, cell.warmup) if s is not None]
    return sum(work_of(s.tokens, cell.sampling.output_tokens) * s.count * s.turns for s in sets)
