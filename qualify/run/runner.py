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

from qualify.engines.owned import sweep
from qualify.engines.resolve import ResolvedLaunch
from qualify.errors import CellError, ExitCode, UsageError
from qualify.evals.planned import Bench
from qualify.plan import CellPlan, EvalPlan, LaunchPlan, Plan, ProbePlan
from qualify.planning.identity import refuse_changed
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.tokens import Tokenizer
from qualify.records.store import META, Store, read_plan
from qualify.run import events as e
from qualify.run.desk import Desk, work_of_eval
from qualify.run.journal import Journal
from qualify.run.launcher import Item, Launcher
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
        lab = Lab(store, checks=plan.checks)
        for text in (*desk.damage, *lab.damage):
            watch(e.Note(f"{text}: that line is left out"))
        shelf, stop = Shelf(build), asyncio.Event()
        launcher = Launcher(journal, resolved, shelf, watch, start_timeout_s, desk, lab, stop)
        runner = _Runner(plan, journal, shelf, watch, desk, lab, launcher, stop)
        try:
            return asyncio.run(runner.run())
        except UsageError:
            forget_start(out, made=made)
            raise


class _Runner:
    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        shelf: Shelf,
        watch: e.Watcher,
        desk: Desk,
        lab: Lab,
        launcher: Launcher,
        stop: asyncio.Event,
    ) -> None:
        self.plan, self.journal, self.shelf, self.watch = plan, journal, shelf, watch
        self.desk, self.lab, self.launcher, self.stop = desk, lab, launcher, stop

    async def run(self) -> RunOutcome:
        pending = [(item, self.journal.pending(item)) for item in self.plan.launches]
        if any(cells for _, cells in pending):
            self.lab.reopen()
        todo = [(item, cells) for item, cells in pending if cells or self._extra(item)]
        open_cells = [cell for _, cells in todo for cell in cells]
        evals = [asked for item, _ in todo for asked in self.desk.pending(item)]
        probes = [probe for item, _ in todo for probe in self.lab.pending(item)]
        total = sum(len(item.cells) + len(item.evals) for item in self.plan.launches)
        folder = self.journal.store.folder
        self.watch(
            e.RunStarted(
                self.journal.run_id,
                str(folder),
                len(todo),
                total,
                total - len(open_cells) - len(evals),
                sum(_work(cell) for cell in open_cells)
                + sum(map(work_of_eval, evals))
                + sum(work_of(p.prompt_tokens, p.output_tokens) for p in probes),
            )
        )
        with stopping_on_signals(self.stop):
            # Everything is built before any engine starts: no prompt is made on the clock.
            for cell in open_cells:
                for spec in (cell.prompts, cell.warmup):
                    if spec is not None and not self.stop.is_set():
                        await self._build(spec)
            for probe in probes:
                for spec in probe.prompts:
                    if not self.stop.is_set():
                        await self._build(spec)
            for position, (item, cells) in enumerate(todo, start=1):
                waiting: list[Item] = [*cells, *self._extra(item)]
                if self.stop.is_set() or self.lab.needless(self.journal.run_id, item, waiting):
                    continue
                self.watch(e.LaunchStarting(item.id, item.side.name, position, len(todo)))
                await self.launcher.do(item, waiting)
            await asyncio.to_thread(self.desk.grade, self.watch, self.stop.is_set)
        return RunOutcome(
            folder,
            self.stop.is_set(),
            self.journal.count("finished"),
            self.journal.count("failed"),
            tuple(self.launcher.failures),
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


def _work(cell: CellPlan) -> int:
    """Weighted tokens of everything a cell sends, for the time that is left."""
    sets = [s for s in (cell.prompts, cell.warmup) if s is not None]
    return sum(work_of(s.tokens, cell.sampling.output_tokens) * s.count * s.turns for s in sets)
