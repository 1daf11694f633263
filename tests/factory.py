"""Runs with a known truth, played step by step; nothing here shares code with the analysis.

Each request is simulated: a prefill, one token from it, then target steps of a given cycle
time, each committing its correct drafts and one more token, cut off at the budget. Counts
and times are taken from that play, so that tests compare figures with what really happened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qualify.engines.protocol import Sampling
from qualify.plan import CellPlan, LaunchPlan, Plan, Side
from qualify.prompts.prompt import PromptSpec
from qualify.records.run import Run
from qualify.records.schema import (
    CacheEvidence,
    CellEnd,
    LaunchRecord,
    Record,
    Speculation,
    Timing,
    Usage,
)

Edit = Callable[[Record], Record]


@dataclass(frozen=True)
class Mode:
    """How a side decodes: one step takes cycle_ms; accepted(workload, prompt, step) drafts of
    `width` proposed ones are right in it. accepted None: no speculation."""

    name: str = "target-only"
    cycle_ms: float = 10.0
    width: int = 0
    accepted: Callable[[str, int, int], int] | None = None
    launch_factor: Callable[[int], float] = lambda launch: 1.0  # cycle of the n-th launch
    growth: Callable[[int], float] = lambda tokens: 1.0  # of the cycle, with the prompt's length


@dataclass(frozen=True)
class Work:
    name: str = "prose"
    tokens: Sequence[int] = (256,)
    count: int = 4
    concurrency: Sequence[int] = (1,)
    cache: str = "cold"
    until: str = "length"


def target(cycle_ms: float = 10.0, **more: Any) -> Mode:
    return Mode(cycle_ms=cycle_ms, **more)


def drafting(
    name: str = "mtp", cycle_ms: float = 12.0, width: int = 3, right: int | Sequence[int] = 2
) -> Mode:
    """A drafter whose correct drafts per step follow a repeating list."""
    pattern = [right] if isinstance(right, int) else list(right)
    return Mode(name, cycle_ms, width, lambda w, p, s: pattern[(s + p) % len(pattern)])


@dataclass
class Maker:
    """Builds a Run; every field may be changed before `build`."""

    sides: dict[str, Mode] = field(default_factory=lambda: {"target-only": target()})
    works: Sequence[Work] = (Work(),)
    rounds: int = 1
    output_tokens: int = 32
    prefill_tok_s: float = 1000.0
    self_parity: bool = True
    planted_cached: int | None = 200
    method: str = "bypass"
    checks: dict[str, Any] = field(default_factory=dict)
    expect: list[dict[str, Any]] = field(default_factory=list)
    temperature: float = 0.0
    edit: Edit = lambda record: record
    edit_end: Callable[[CellEnd], CellEnd] = lambda end: end
    meta: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path("nowhere")
    clock_noise: Callable[[str, int, int], float] = lambda side, round_, prompt: 1.0

    def plan(self) -> Plan:
        baseline = next(iter(self.sides))
        launches = []
        for number in range(1, self.rounds + 1):
            for name in self.sides:
                launches.append(self._launch(f"r{number}.{name}", number, name, "measure"))
        if self.self_parity:
            launches.append(self._launch(f"r1.{baseline}.again", 1, baseline, "self-parity"))
        names = list(self.sides)
        return Plan(
            hash="f" * 64,
            campaign={"campaign": "made", "expect": self.expect},
            engine={"name": "scripted"},
            identity={},
            baseline=baseline,
            pairs=tuple((n, baseline) for n in names[1:]),
            launches=tuple(launches),
            checks=self.checks,
        )

    def _launch(self, id_: str, number: int, name: str, purpose: str) -> LaunchPlan:
        mode = self.sides[name].name
        cells = tuple(
            CellPlan(
                id=f"{w.name}@{tokens}/c{c}",
                workload=w.name,
                prompts=PromptSpec("made", w.name, "corpora/prose", tokens, w.count, 0),
                warmup=None,
                sampling=Sampling(self.output_tokens, temperature=self.temperature),
                concurrency=c,
                cache=w.cache,
                until=w.until,
                first_token_timeout_s=60.0,
            )
            for w in self.works
            for tokens in w.tokens
            for c in w.concurrency
        )
        return LaunchPlan(id_, number, Side(name, mode, None, {}, {}), cells, purpose)

    def build(self) -> Run:
        plan = self.plan()
        records: list[Record] = []
        ends: list[CellEnd] = []
        launches: list[LaunchRecord] = []
        for order, launch in enumerate(plan.launches):
            attempt = f"{launch.id}#1"
            launches.append(
                LaunchRecord(
                    "made",
                    attempt,
                    launch.id,
                    launch.round,
                    launch.side.name,
                    launch.side.mode,
                    "started",
                    "2026-01-01T00:00:00Z",
                )
            )
            for cell in launch.cells:
                mine = [self.edit(r) for r in self._play_cell(launch, cell, attempt, order)]
                records += mine
                ends.append(self.edit_end(self._end(cell, attempt, mine)))
        ends = [e for e in ends if e.status != "superseded"]
        kept = {(e.launch, e.cell) for e in ends}
        return Run(
            id="made",
            folder=self.folder,
            plan=plan,
            launches=tuple(launches),
            cells=tuple(ends),
            records=tuple(r for r in records if (r.launch, r.cell) in kept),
            superseded=(),
            damage=(),
            meta=self.meta,
        )

    def _end(self, cell: CellPlan, attempt: str, mine: list[Record]) -> CellEnd:
        ok = sum(r.ok for r in mine)
        return CellEnd(
            "made",
            attempt,
            cell.id,
            "finished",
            None,
            len(mine),
            ok,
            "2026-01-01T00:00:00Z",
            1.0,
            None,
            {
                "cold": {
                    "planted_cached": self.planted_cached,
                    "method": self.method,
                    "flush": {"status": 200} if self.method == "flush" else None,
                }
            },
        )

    def _play_cell(
        self, launch: LaunchPlan, cell: CellPlan, attempt: str, order: int
    ) -> list[Record]:
        free = [0.0] * cell.concurrency
        played = []
        for index in range(cell.prompts.count):
            slot = free.index(min(free))
            record = self._play(launch, cell, attempt, order, index, free[slot])
            free[slot] += record.timing.t_end_s or 0.0
            played.append(record)
        return played

    def _play(
        self,
        launch: LaunchPlan,
        cell: CellPlan,
        attempt: str,
        order: int,
        index: int,
        start: float,
    ) -> Record:
        mode = self.sides[launch.side.name]
        cycle_s = mode.cycle_ms / 1e3 * mode.launch_factor(order)
        cycle_s *= mode.growth(cell.prompts.tokens)
        cycle_s *= self.clock_noise(launch.id, launch.round, index)
        now = cell.prompts.tokens / self.prefill_tok_s
        events: list[tuple[float, int | None]] = [(now, 1)]
        made, steps, proposed, correct, trimmed = 1, 0, 0, 0, 0
        histogram = [0] * (mode.width + 1)
        while made < self.output_tokens:
            right = mode.accepted(cell.workload, index, steps) if mode.accepted else 0
            now += cycle_s
            steps += 1
            proposed += mode.width
            correct += right
            histogram[right] += 1
            fits = min(right + 1, self.output_tokens - made)
            trimmed += right + 1 - fits
            made += fits
            events.append((now, fits))
        prompt_id = f"{cell.workload}@{cell.prompts.tokens}/measured/{index}"
        ids = output_ids(prompt_id, made)
        spec = None
        if mode.accepted is not None:
            spec = Speculation(
                "scripted", steps, proposed, correct, 1, 0, trimmed, tuple(histogram)
            )
        first, last = events[0][0], events[-1][0]
        return Record(
            run="made",
            launch=attempt,
            round=launch.round,
            side=launch.side.name,
            mode=launch.side.mode,
            cell=cell.id,
            workload=cell.workload,
            tokens=cell.prompts.tokens,
            concurrency=cell.concurrency,
            phase="measured",
            index=index,
            turn=0,
            prompt_id=prompt_id,
            prompt_sha256=hashlib.sha256(prompt_id.encode()).hexdigest(),
            request={
                "temperature": self.temperature,
                "output_tokens": self.output_tokens,
                "ignore_eos": True,
                "prompt_class": "natural",
            },
            request_sha256="11",
            started_at="2026-01-01T00:00:00Z",
            t_start_s=start,
            ok=True,
            failure=None,
            http_status=200,
            usage=Usage(cell.prompts.tokens, made, 0),
            timing=Timing(
                convention="first-event",
                ttft_s=first,
                t_first_s=first,
                t_last_s=last,
                t_end_s=last + 0.001,
                n_first=1,
                tpot_ms=(last - first) / (made - 1) * 1e3 if made > 1 else None,
                tpot_common_ms=(last - first) / (made - 1) * 1e3 if made > 1 else None,
                max_gap_ms=cycle_s * 1e3,
                first_visible_s=first,
                events=tuple(events),
            ),
            finish_reason="length",
            output_text=" ".join(f"w{i}" for i in ids),
            reasoning_text=None,
            output_ids=ids,
            output_sha256=None,
            speculation=spec,
            cache=CacheEvidence(cell.cache, self.method),
            client_delay_ms=0.1,
            extras={"meta_info": {"num_retractions": 0}},
        )


def output_ids(prompt_id: str, n: int) -> tuple[int, ...]:
    """What the scripted target answers: the same for a prompt in every mode and launch."""
    seed = hashlib.sha256(prompt_id.encode()).digest()
    return tuple(seed[i % len(seed)] * 7 + i for i in range(n))


def where(
    side: str | None = None, index: int | None = None, cell: str | None = None
) -> Callable[[Record], bool]:
    return lambda r: (
        (side is None or r.side == side)
        and (index is None or r.index == index)
        and (cell is None or r.cell == cell)
    )


def editing(chosen: Callable[[Record], bool], **changes: Any) -> Edit:
    """Replace fields of the chosen records; `usage__cached_tokens=5` reaches inside."""

    def edit(record: Record) -> Record:
        if not chosen(record):
            return record
        for name, value in changes.items():
            outer, _, inner = name.partition("__")
            now = value(record) if callable(value) else value
            if inner:
                now = replace(getattr(record, outer), **{inner: now})
            record = replace(record, **{outer: now})
        return record

    return edit
