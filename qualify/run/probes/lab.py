"""The probes of a run: which are still to be done, and doing one without harm to the rest."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from qualify.engines.resolve import ResolvedLaunch
from qualify.errors import QualifyError
from qualify.plan import LaunchPlan, ProbePlan
from qualify.records.probes import ends_of, planned
from qualify.records.schema import ProbeRecord
from qualify.records.store import PROBES as FILE
from qualify.records.store import Store, read_lines
from qualify.run.events import Note
from qualify.run.journal import now
from qualify.run.launch import Attempt
from qualify.run.probes import ABOUT_ALL, PROBES
from qualify.run.probes.before import inspections_of, look
from qualify.run.probes.probing import Interrupted, Probe, Probing, line


class Lab:
    """A probe is done once in a run: in the attempt in which it finished."""

    def __init__(
        self,
        store: Store,
        probes: Mapping[str, Probe] = PROBES,
        checks: Mapping[str, Any] | None = None,
    ) -> None:
        self.store, self.probes, self.checks = store, probes, checks or {}
        damage: list[str] = []
        ends = ends_of(read_lines(ProbeRecord, store.folder / FILE, damage))
        self._looked = {(end.side, end.probe) for end in ends.values() if end.status == "finished"}
        self._done = {key for key, end in ends.items() if end.status == "finished"}
        self.damage = tuple(damage)

    def pending(self, launch: LaunchPlan) -> list[ProbePlan]:
        return [item for item in launch.probes if (launch.id, item.name) not in self._done]

    def reopen(self) -> None:
        """Something is measured again or at last: what is about all of it is asked again."""
        self._done = {(launch, name) for launch, name in self._done if name not in ABOUT_ALL}

    def needless(self, run: str, launch: LaunchPlan, waiting: Sequence[object]) -> bool:
        """Whether no engine need be started: only probes wait, and none has anything to ask.

        They are then done, which the line that ends them says; its launch was never started.
        """
        probes = [item for item in waiting if isinstance(item, ProbePlan)]
        if len(probes) < len(waiting):
            return False
        if not all(p.name in ABOUT_ALL and ABOUT_ALL[p.name](self.store.folder) for p in probes):
            return False
        for item in probes:
            side = launch.side
            self._end(
                ProbeRecord(
                    run,
                    f"{launch.id}#0",
                    launch.round,
                    side.name,
                    side.mode,
                    item.name,
                    "",
                    "step",
                    now(),
                    seen={"nothing_to_ask": True},
                ),
                None,
            )
        return True

    async def before(
        self, run: str, launch: LaunchPlan, attempt: str, resolved: ResolvedLaunch
    ) -> None:
        """Look at checkpoints and image before the first launch of a side; decides nothing."""
        side = launch.side
        for name in inspections_of(resolved, self.checks):
            if (side.name, name) in self._looked:
                continue
            self._looked.add((side.name, name))
            blank = ProbeRecord(
                run, attempt, launch.round, side.name, side.mode, name, "", "step", now()
            )
            reason = None
            try:
                for step, seen in await asyncio.to_thread(look, name, resolved):
                    self.store.append(dataclasses.replace(blank, step=step, seen=seen))
            except Exception as error:
                reason = f"it could not be looked at: {type(error).__name__}: {error}"
            self._end(blank, reason)

    async def probe(self, attempt: Attempt, item: ProbePlan) -> bool:
        """Run one probe to its end, good or bad; False when the user stopped it.

        Whatever it raises ends that probe alone, and says so in the line that ends it.
        """
        reason: str | None = None
        attempt.watch(Note(f"{attempt.id} {item.name}: probing, {item.requests} requests"))
        try:
            await self.probes[item.name](Probing(attempt, item))
        except Interrupted:
            return False
        except QualifyError as error:
            reason = f"{error.message} {error.remedy}".strip()
        except Exception as error:
            reason = f"the probe itself broke: {type(error).__name__}: {error}"
        if attempt.stop.is_set():
            return False
        if not attempt.server.alive():
            reason = f"the engine ended during the probe: {attempt.server.exit}" + (
                f" ({reason})" if reason else ""
            )
        self._end(line(attempt, item.name, "", {}), reason)
        if reason is not None:
            attempt.watch(Note(f"{attempt.id} {item.name}: failed: {reason}"))
        return True

    def fail(self, run: str, launch: LaunchPlan, attempt: str, item: ProbePlan, why: str) -> None:
        """End a probe for which no engine could be had."""
        side = launch.side
        nothing = ProbeRecord(
            run, attempt, launch.round, side.name, side.mode, item.name, "", "failed", now()
        )
        self._end(nothing, why)

    def _end(self, record: ProbeRecord, reason: str | None) -> None:
        ended = dataclasses.replace(
            record, status="finished" if reason is None else "failed", reason=reason, at=now()
        )
        self.store.append(ended)
        if reason is None:
            self._done.add((planned(record.launch), record.probe))
