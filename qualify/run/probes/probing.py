"""What a probe holds while it runs: a ready engine, its plan, and where its steps are written."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from qualify.client.load import Gate
from qualify.plan import CellPlan, ProbePlan
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.records.schema import CacheEvidence, ProbeRecord, Record
from qualify.run.clearing import clear
from qualify.run.journal import now
from qualify.run.launch import Attempt
from qualify.run.sending import send_phase

PLAIN = CacheEvidence("warm", "none")


class Interrupted(Exception):
    """The user asked to stop: the probe has no end and is run again by a resume."""


@dataclasses.dataclass
class Probing:
    """One probe in one launch attempt.

    Every step is written when it is known, so that a kill loses at most the request in flight.
    """

    attempt: Attempt
    item: ProbePlan
    _sent: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    @property
    def options(self) -> dict[str, Any]:
        return self.item.options

    def note(self, step: str, request: Record | None = None, **seen: Any) -> None:
        """Write one step: a request where there was one, and what else was seen (JSON-ready)."""
        self.attempt.store.append(line(self.attempt, self.item.name, step, seen, request))

    def log_bytes(self) -> int | None:
        """How long the engine's log is now, to tell later what was said meanwhile."""
        path = self.attempt.server.log_path
        return path.stat().st_size if path is not None and path.exists() else None

    async def prompts(self, spec: PromptSpec) -> list[Prompt]:
        """Raises CellError where they cannot be built."""
        return await asyncio.to_thread(self.attempt.shelf.get, spec)

    async def clear(self) -> CacheEvidence:
        """Empty the prefix cache as for a cold cell; CellError when a flush is refused."""
        return await clear(
            self.attempt.server.protocol,
            self.attempt.able,
            "cold",
            patience_s=self.attempt.flush_patience_s,
        )

    async def send(
        self,
        step: str,
        chains: Sequence[Sequence[Prompt]],
        *,
        output_tokens: int,
        concurrency: int = 1,
        cache: CacheEvidence = PLAIN,
        stop: asyncio.Event | None = None,
        gate: Gate | None = None,
        **seen: Any,
    ) -> list[Record]:
        """Send every prompt of every chain, each answer written as one line of `step`.

        `stop`, once set, cancels what is in flight; those are recorded as cancelled.
        `gate(index)` is awaited before a chain's first request, outside of its time. Raises
        CellError where a prompt cannot be sent exactly, Interrupted when the user stops.
        """
        cell = self.cell(step, output_tokens, concurrency)
        following = asyncio.ensure_future(self._follow(stop)) if stop is not None else None
        try:
            records, _ = await send_phase(
                self.attempt,
                cell,
                chains,
                "probe",
                cache,
                concurrency=concurrency,
                stop=stop,
                gate=gate,
                keep=lambda record: self.note(step, record, **seen),
                tag=f"/{self.item.name}.{next(self._sent)}",
            )
        finally:
            if following is not None:
                following.cancel()
        if self.attempt.stop.is_set():
            raise Interrupted
        return records

    async def _follow(self, stop: asyncio.Event) -> None:
        """The user's wish to stop ends what a probe's own switch would end."""
        await self.attempt.stop.wait()
        stop.set()

    def cell(self, step: str, output_tokens: int, concurrency: int) -> CellPlan:
        """What a probe sends, as a cell, so that its requests are recorded as any other."""
        like = self.item.like
        return dataclasses.replace(
            like,
            id=f"{self.item.name}:{step}",
            workload=self.item.name,
            sampling=dataclasses.replace(
                like.sampling, output_tokens=output_tokens, ignore_eos=True
            ),
            concurrency=concurrency,
            until="length",
        )


def line(
    attempt: Attempt,
    probe: str,
    step: str,
    seen: dict[str, Any],
    request: Record | None = None,
) -> ProbeRecord:
    """A step of a probe, ready to be written."""
    side = attempt.launch.side
    return ProbeRecord(
        run=attempt.run,
        launch=attempt.id,
        round=attempt.launch.round,
        side=side.name,
        mode=side.mode,
        probe=probe,
        step=step,
        status="step",
        at=now(),
        seen=seen,
        request=request,
    )


Probe = Callable[[Probing], Awaitable[None]]
