"""`lifecycle`: flush, cancel, shift, wait, refuse; after each the same request as before it."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence

from qualify.planning.probes.lifecycle import (
    OUTPUT_TOKENS,
    TURN_TOKENS,
    TURNS,
    TURNS_A_STRETCH,
)
from qualify.prompts.prompt import Prompt
from qualify.records.schema import CacheEvidence, Record
from qualify.run.probes.pieces import of_ids
from qualify.run.probes.probing import PLAIN, Interrupted, Probing
from qualify.run.probes.refusals import LOGPROBS, ask

CANCEL_AT = 0.4  # of the time that the cancelled phase took in the requests before
TRIES = 3


async def probe(probing: Probing) -> None:
    """Steps: warm, before, flush, after, cancelled and fresh (in prefill, in decode), cold,
    turn and turn-cold, idle, settled (the same again, over what is kept), refusal, unharmed."""
    first, session = probing.item.prompts
    *pairs, victim, warm = await probing.prompts(first)
    probing.note(
        "shape", **{k: probing.options[k] for k in ("tokens", "wanted")}, output=OUTPUT_TOKENS
    )
    await _one("warm", probing, [warm])
    before = await _one("before", probing, pairs, cache=await _flush(probing))
    await _one("after", probing, pairs, cache=await _flush(probing))
    await _cancel(probing, victim, before)
    await _one("cold", probing, [victim], cache=await _flush(probing))
    await _turns(probing, await probing.prompts(session))
    await _idle(probing, pairs[0])
    await _refusals(probing, pairs[0])


async def _one(
    step: str,
    probing: Probing,
    prompts: Sequence[Prompt],
    tokens: int = OUTPUT_TOKENS,
    cache: CacheEvidence = PLAIN,
) -> list[Record]:
    """One after another, over the cache as it is unless `cache` says otherwise."""
    return await probing.send(step, [list(prompts)], output_tokens=tokens, cache=cache)


async def _flush(probing: Probing) -> CacheEvidence:
    """Empty the cache, saying how; where no flush is known the next requests bypass it."""
    found = await probing.clear()
    probing.note(
        "flush",
        method=found.method,
        status=found.flush_status,
        seconds=found.flush_s,
        attempts=found.flush_attempts,
    )
    return found


async def _cancel(probing: Probing, victim: Prompt, before: Sequence[Record]) -> None:
    """Cancelled in its prefill, then whole; cancelled in its decode, then whole.

    A moment that was missed (the machine was faster or slower than before) is tried again.
    """
    ttft = [r.timing.ttft_s for r in before if r.timing.ttft_s is not None]
    ends = [r.timing.t_end_s for r in before if r.ok and r.timing.t_end_s is not None]
    if not ttft or not ends:
        return  # nothing was streamed before, so no moment of a phase is known
    prefill = statistics.median(ttft)
    delay_s = prefill * CANCEL_AT
    for _ in range(TRIES):
        gone = await _cancelled_after(probing, "prefill", victim, delay_s)
        if not gone.timing.events:
            break
        delay_s /= 3
        await _flush(probing)
    await _fresh(probing, victim, "prefill")
    # Its prefix is cached now, so that its decode begins soon: when, is asked first.
    warm = await _fresh(probing, victim, "warm")
    first_s, end_s = warm.timing.ttft_s or 0.0, warm.timing.t_end_s or 0.0
    delay_s = first_s + (end_s - first_s) * CANCEL_AT
    for _ in range(TRIES):
        gone = await _cancelled_after(probing, "decode", victim, delay_s)
        if gone.timing.events and not gone.ok:
            break
        delay_s = (delay_s + end_s) / 2 if not gone.ok else (first_s + delay_s) / 2
    await _fresh(probing, victim, "decode")


async def _fresh(probing: Probing, prompt: Prompt, phase: str) -> Record:
    (record,) = await probing.send("fresh", [[prompt]], output_tokens=OUTPUT_TOKENS, phase=phase)
    return record


async def _cancelled_after(probing: Probing, phase: str, victim: Prompt, delay_s: float) -> Record:
    """Send it and close its connection `delay_s` later, counted from when it is sent."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def sending(_: int) -> None:
        loop.call_later(delay_s, stop.set)

    (record,) = await probing.send(
        "cancelled",
        [[victim]],
        output_tokens=OUTPUT_TOKENS,
        stop=stop,
        gate=sending,
        phase=phase,
        after_s=delay_s,
    )
    return record


async def _turns(probing: Probing, built: Sequence[Prompt]) -> None:
    """Twelve turns that grow; after every fourth the oldest quarter is dropped."""
    if not probing.attempt.able.token_ids_in:
        return  # a shifted prefix is a cut in token ids
    text, tokens, shift = built[0], probing.options["tokens"], probing.options["shift"]
    grow = max(1, min(64, tokens // 8))
    turns = []
    for turn in range(TURNS):
        stretch, step = divmod(turn, TURNS_A_STRETCH)
        begin = stretch * shift
        end = begin + tokens - (TURNS_A_STRETCH - 1 - step) * grow
        turns.append(of_ids(text, f"turn.{turn}", text.ids[begin:end], turn))
    await _one("turn", probing, turns, TURN_TOKENS)
    await _one("turn-cold", probing, turns[-1:], TURN_TOKENS, await _flush(probing))


async def _idle(probing: Probing, prompt: Prompt) -> None:
    """Nothing for a while, then a request that was answered before."""
    seconds = float(probing.options["idle_s"])
    stopped = asyncio.ensure_future(probing.attempt.stop.wait())
    await asyncio.wait({stopped}, timeout=seconds)
    stopped.cancel()
    if probing.attempt.stop.is_set():
        raise Interrupted
    cache = await _flush(probing)
    await probing.send("idle", [[prompt]], output_tokens=OUTPUT_TOKENS, cache=cache, s=seconds)
    await _one("settled", probing, [prompt])
    await _one("settled", probing, [prompt])


async def _refusals(probing: Probing, prompt: Prompt) -> None:
    """Token scores, which a block drafter may not serve; a prompt above the context."""
    scores = LOGPROBS.get(probing.attempt.server.protocol.name)
    if scores is not None and probing.attempt.launch.side.mode != "target-only":
        await ask(probing, "logprobs", prompt, scores)
        await probing.send("unharmed", [[prompt]], output_tokens=OUTPUT_TOKENS, kind="logprobs")
    limit = probing.attempt.info.context_tokens
    if limit is not None and probing.attempt.able.token_ids_in:
        ids = (prompt.ids * (limit // len(prompt.ids) + 2))[: limit + 1]
        await ask(probing, "too-long", of_ids(prompt, "too-long", ids), {})
        await probing.send("unharmed", [[prompt]], output_tokens=OUTPUT_TOKENS, kind="too-long")
