"""One cell: warm up, clear, measure, collect. The unit of crash safety and of resume."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from qualify.engines.counters import difference
from qualify.errors import CellError
from qualify.plan import CellPlan
from qualify.records.schema import CacheEvidence, CellEnd, CellStatus, Record
from qualify.run.clearing import clear
from qualify.run.events import CellEnded, CellStarted
from qualify.run.launch import Attempt
from qualify.run.metering import Metering
from qualify.run.sending import send_phase
from qualify.run.shelf import sessions

BROKEN = frozenset({"refused", "connect", "reset", "truncated-stream"})


class Interrupted(Exception):
    """The user asked to stop while the cell was in flight: it has no end."""


async def measure_cell(attempt: Attempt, cell: CellPlan) -> CellEnd:
    """Measure `cell`; its records are written, its end is returned. Raises Interrupted alone."""
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    began = time.monotonic()
    attempt.watch(CellStarted(attempt.id, cell.id, cell.prompts.count * cell.prompts.turns))
    evidence: dict[str, Any] = {}
    records: list[Record] = []
    reason: str | None = None
    try:
        records = await _phases(attempt, cell, evidence)
    except CellError as error:
        reason = f"{error.message} {error.remedy}".strip()
    if attempt.stop.is_set():
        raise Interrupted
    if not await _survived(attempt, records):
        exit_ = attempt.server.exit
        reason = f"the engine ended during the cell: {exit_}"
        evidence["log_tail"] = attempt.server.log_tail(20)
    ok = sum(record.ok for record in records)
    if reason is None and ok == 0:
        reason = _why_none(records)
    status: CellStatus = "finished" if reason is None else "failed"
    end = CellEnd(
        run=attempt.run,
        launch=attempt.id,
        cell=cell.id,
        status=status,
        reason=reason,
        requests=cell.prompts.count * cell.prompts.turns,
        ok=ok,
        started_at=started,
        duration_s=time.monotonic() - began,
        window_s=_window(records),
        evidence=evidence,
    )
    attempt.watch(CellEnded(attempt.id, cell.id, status, reason, ok, end.requests, end.duration_s))
    return end


async def _phases(attempt: Attempt, cell: CellPlan, evidence: dict[str, Any]) -> list[Record]:
    """Warm-up, clearing, priming, measuring, in this order; evidence is filled on the way."""
    protocol, able = attempt.server.protocol, attempt.able
    chains = sessions(attempt.shelf.get(cell.prompts))
    _check_fit(attempt, cell)
    evidence["cold"] = {**attempt.planted}
    if cell.warmup is not None:
        own = CacheEvidence(cell.cache, "bypass" if _bypasses(attempt, cell) else "none")
        warm = [[p] for chain in sessions(attempt.shelf.get(cell.warmup)) for p in chain]
        began = time.monotonic()
        done, _ = await send_phase(
            attempt, cell, warm, "warmup", own, concurrency=min(cell.concurrency, len(warm))
        )
        evidence["warmup"] = {
            "requests": len(done),
            "ok": sum(r.ok for r in done),
            "seconds": time.monotonic() - began,
        }
        if attempt.stop.is_set():
            raise Interrupted
        _check_shape(done)
    cache = await clear(protocol, able, cell.cache, patience_s=attempt.flush_patience_s)
    evidence["cold"] |= {
        "method": cache.method,
        "flush": {
            "status": cache.flush_status,
            "seconds": cache.flush_s,
            "attempts": cache.flush_attempts,
        }
        if cache.method == "flush"
        else None,
    }
    if cell.cache == "warm":
        planted, _ = await send_phase(attempt, cell, chains, "warmup", cache, concurrency=1)
        evidence["primed"] = {"requests": len(planted), "ok": sum(r.ok for r in planted)}
        if attempt.stop.is_set():
            raise Interrupted
    before = await protocol.counters()
    started = attempt.server.process
    async with Metering(started.root_pid if started is not None else None) as meter:
        records, window = await send_phase(
            attempt, cell, chains, "measured", cache, concurrency=cell.concurrency
        )
    evidence["telemetry"] = meter.told
    evidence["client"] = {
        "mean_in_flight": window.mean_in_flight,
        "max_in_flight": window.max_in_flight,
        "send_spread_s": window.send_spread_s,
        "delay_ms": window.client_delay_ms,
        "cpu_share": window.cpu_share,
    }
    after = await protocol.counters() if attempt.server.alive() else None
    change = difference(before, after)
    evidence["counters"] = {"values": change.values, "problem": change.problem}
    return records


async def _survived(attempt: Attempt, records: list[Record]) -> bool:
    """Whether the engine still runs. A broken connection is often its last word, heard a
    moment before its end is: that moment is given to it."""
    broken = any(r.failure is not None and r.failure.cause in BROKEN for r in records)
    for _ in range(20 if broken else 0):
        if not attempt.server.alive():
            break
        await asyncio.sleep(0.05)
    return attempt.server.alive()


def _bypasses(attempt: Attempt, cell: CellPlan) -> bool:
    """Warm-up requests take the same path as the measured ones: bypassing where they will."""
    able = attempt.able
    return cell.cache == "cold" and able.bypass and not able.flush and not able.no_prefix_cache


def _check_fit(attempt: Attempt, cell: CellPlan) -> None:
    """What the running engine says of its size may be smaller than its definition's."""
    context = attempt.info.context_tokens
    longest = max(len(prompt.ids) for prompt in attempt.shelf.get(cell.prompts))
    if context is not None and longest + cell.sampling.output_tokens > context:
        raise CellError(
            f"{longest} + {cell.sampling.output_tokens} tokens do not fit the"
            f" {context} that the running engine allows a request.",
            "Shorten the workload, or start the engine with a longer context.",
        )


def _check_shape(warm: list[Record]) -> None:
    """The warm-up has the cell's shape: an engine that counts it otherwise is not measured."""
    for record in warm:
        seen = record.usage.prompt_tokens
        if record.ok and seen is not None and seen != record.tokens:
            raise CellError(
                f"shape mismatch: asked {record.tokens:,}, engine saw {seen:,} in the warm-up.",
                "Give the campaign the tokenizer: of the model that is served.",
            )


def _window(records: list[Record]) -> float | None:
    """First send to last end, over what was sent; None when nothing was."""
    ends = [r.t_start_s + r.timing.t_end_s for r in records if r.timing.t_end_s is not None]
    return max(ends) - min(r.t_start_s for r in records) if ends else None


def _why_none(records: list[Record]) -> str:
    causes: dict[str, int] = {}
    for record in records:
        if record.failure is not None:
            causes[record.failure.cause] = causes.get(record.failure.cause, 0) + 1
    listed = ", ".join(f"{count} x {cause}" for cause, count in sorted(causes.items()))
    first = next((r.failure.message for r in records if r.failure is not None), "")
    return f"no request succeeded ({listed or 'none was sent'}): {first}"[:500]
