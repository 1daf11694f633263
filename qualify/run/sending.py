"""Send one phase of a cell and turn every answer into a Record, in the order they end.

Folding and writing run on one worker thread, so that the loop that stamps arrival times does
no parsing. Where one stream is measured at a time, the next request waits for the record of
the last: nothing competes with it then, and a kill loses at most the request in flight.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from qualify.client.clock import CLOCK
from qualify.client.load import Gate, NextRequest, Window, run_sessions
from qualify.client.reply import HttpRequest, RawReply
from qualify.client.timing import timing_of
from qualify.plan import CellPlan
from qualify.prompts.prompt import Prompt
from qualify.records.schema import CacheEvidence, Phase, Record
from qualify.run.events import RequestDone
from qualify.run.launch import Attempt
from qualify.run.observe import Where, to_record

# How long the worker may hold the interpreter while the loop wants it.
SWITCH_S = 0.0005
IDLE_TIMEOUT_S = 600.0


@contextmanager
def _short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def work_of(prompt_tokens: int, output_tokens: int) -> int:
    """Weighted tokens, for progress only: a decoded token costs about three prefilled ones."""
    return prompt_tokens + 3 * output_tokens


async def send_phase(
    attempt: Attempt,
    cell: CellPlan,
    chains: Sequence[Sequence[Prompt]],
    phase: Phase,
    cache: CacheEvidence,
    *,
    concurrency: int,
    stop: asyncio.Event | None = None,
    gate: Gate | None = None,
    keep: Callable[[Record], None] | None = None,
    tag: str = "",
) -> tuple[list[Record], Window]:
    """Send every prompt of every chain once; the prompts of one chain one after another.

    Returns the records by chain and turn, and what the loop did. Every body is encoded before
    the first is sent. When the attempt's stop is set (or `stop`, where one is given), what is
    in flight is cancelled and recorded as such, and the rest is not sent. `keep` is given each
    record instead of the store; `gate(index)` is awaited before a chain's first request.
    `tag` ends each request's id: one that was cancelled may live on in the engine for a while,
    and the same prompt under the same id would share its fate. Raises CellError where a prompt
    cannot be sent in its exact shape.
    """
    protocol = attempt.server.protocol
    write = attempt.store.append if keep is None else keep
    where = Where(attempt.run, attempt.id, attempt.launch, cell, protocol.name, attempt.eos_ids)
    encoded: list[list[HttpRequest]] = [
        [
            protocol.encode(
                prompt,
                cell.sampling,
                request_id=f"{attempt.id}/{prompt.id}{tag}",
                bypass_cache=cache.method == "bypass",
                first_byte_timeout_s=cell.first_token_timeout_s,
                idle_timeout_s=IDLE_TIMEOUT_S,
            )
            for prompt in chain
        ]
        for chain in chains
    ]
    records: dict[tuple[int, int], Record] = {}
    loop = asyncio.get_running_loop()

    def fold(chain: int, step: int, raw: RawReply) -> Record:
        prompt = chains[chain][step]
        reply = protocol.decode(raw)
        timing, notes = timing_of(reply)
        record = to_record(
            where,
            prompt,
            phase,
            encoded[chain][step],
            dataclasses.replace(reply, notes=(*reply.notes, *notes)),
            timing,
            cache,
            t_start_s=raw.t_sent - began,
            client_delay_ms=raw.client_delay_ms,
        )
        write(record)
        return record

    async def finish(chain: int, step: int, raw: RawReply) -> None:
        record = await loop.run_in_executor(worker, fold, chain, step, raw)
        records[chain, step] = record
        attempt.watch(
            RequestDone(
                attempt.id,
                cell.id,
                phase,
                record.ok,
                record.usage.completion_tokens,
                raw.t_end_s,
                work_of(record.tokens, cell.sampling.output_tokens),
            )
        )

    pending: list[asyncio.Task[None]] = []

    async def on_done(chain: int, step: int, raw: RawReply) -> None:
        task = asyncio.ensure_future(finish(chain, step, raw))
        pending.append(task)
        if concurrency == 1:
            await task

    with ThreadPoolExecutor(1, "records") as worker, _short_turns():
        began = CLOCK.now()
        window = await run_sessions(
            [_in_order(chain) for chain in encoded],
            concurrency,
            on_done,
            stop=attempt.stop if stop is None else stop,
            gate=gate,
        )
        for task in pending:
            await task
    return [records[key] for key in sorted(records)], window


def _in_order(chain: list[HttpRequest]) -> NextRequest:
    """The chain's requests one after another, whatever came back."""
    left = iter(chain)
    return lambda _: next(left, None)
