"""A whole engine with a known truth, on the scripted server."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.scripted_engine import dialect_llamacpp, dialect_openai, dialect_sglang
from tests.scripted_engine.generation import Ask, Generation, Shape
from tests.scripted_engine.model import (
    PrefixCache,
    detokenize,
    output_ids,
    plan_steps,
    tokenize,
)
from tests.scripted_engine.server import (
    Answer,
    Cut,
    Reset,
    ScriptedServer,
    Seen,
    sleep_until,
)
from tests.scripted_engine.wire import chunk, event, head, json_play, text_play

_DIALECTS = {"sglang": dialect_sglang, "openai": dialect_openai, "llamacpp": dialect_llamacpp}


class ScriptedEngine(ScriptedServer):
    """`async with ScriptedEngine(dialect="sglang", step_ms=5) as engine:` then `engine.url`.

    ttft_ms + ttft_ms_per_token * (prompt - cached) passes before the first token, step_ms
    between steps. accept: accepted drafts of each step in turn (None = a step without
    proposals; () = no speculation), of `width` proposed. eos_after: where the model would
    stop by itself. slots: requests served at once (None = all). flush_responses: statuses
    that flushes answer before they work. faults: what happens to which generation (by
    ordinal; -1 = all): http-500, error, cut, reset, stall, no-usage, empty, exit; those that
    come in the middle come after fault_after tokens. first_request_extra_ms: compilation, at
    the first request of each prompt length. diverge_at: output differs from there on. canned:
    (key, answer): a prompt whose text holds the key gets that answer, and then the end of text.
    score_margin: log probabilities are given, the honest token so far ahead of the other.
    pool: tokens that it says it holds. truncate: what does not fit is cut short, not refused.
    retracted: (generation, times) that it says of itself. log_steps: "graph" or "eager": a line
    of the log for every step, as SGLang words it. rank_parity: says of each request that its
    ranks agreed, apart from the generations `ranks_apart`.
    """

    def __init__(
        self,
        dialect: str = "sglang",
        *,
        port: int = 0,
        model: str = "scripted",
        ttft_ms: float = 5.0,
        ttft_ms_per_token: float = 0.0,
        step_ms: float = 5.0,
        accept: Sequence[int | None] = (),
        width: int = 4,
        eos_after: int | None = None,
        slots: int | None = None,
        context: int = 1_048_576,
        page: int = 1,
        ready_after_s: float = 0.0,
        first_request_extra_ms: float = 0.0,
        flush_responses: Sequence[int] = (),
        faults: Mapping[int, str] | None = None,
        fault_after: int = 2,
        diverge_at: int | None = None,
        report_cached: bool = True,
        incremental: bool = False,
        canned: Sequence[tuple[str, str]] = (),
        score_margin: float | None = None,
        pool: int | None = None,
        truncate: bool = False,
        retracted: Mapping[int, int] | None = None,
        log_steps: str | None = None,
        rank_parity: bool = False,
        ranks_apart: Sequence[int] = (),
    ) -> None:
        super().__init__(self._answer, port=port)
        self.dialect = dialect
        self.model = model
        self.ttft_ms, self.ttft_ms_per_token, self.step_ms = ttft_ms, ttft_ms_per_token, step_ms
        self.accept, self.width = tuple(accept), width
        self.eos_after, self.context = eos_after, context
        self.report_cached, self.incremental = report_cached, incremental
        self.canned = tuple(canned)
        self.score_margin = score_margin
        self.pool, self.truncate = pool or context, truncate
        self.retracted, self.log_steps = dict(retracted or {}), log_steps
        self.rank_parity, self.ranks_apart = rank_parity, frozenset(ranks_apart)
        self.flush_responses = list(flush_responses)
        self.flushes: list[tuple[float, int]] = []  # (time, status) of every flush asked for
        self.aborted: list[str] = []
        self.faults = dict(faults or {})
        self.fault_after, self.diverge_at = fault_after, diverge_at
        self.cache = PrefixCache(page)
        self.generations: list[Generation] = []
        self.counters: dict[str, float] = dict.fromkeys(
            ("requests", "prompt", "cached", "generated", "V", "P", "C"), 0.0
        )
        self.slots = slots
        self._free = asyncio.Semaphore(slots or 1_000_000)
        self._ready_at = time.monotonic() + ready_after_s
        self._first_extra_ms = first_request_extra_ms
        self._lengths: set[int] = set()
        self._surface = _DIALECTS[dialect]

    @property
    def ready(self) -> bool:
        return time.monotonic() >= self._ready_at

    @property
    def running(self) -> int:
        return sum(1 for g in self.generations if g.ended == "running")

    def _answer(self, seen: Seen) -> Answer:
        try:
            body = json.loads(seen.body) if seen.body else {}
        except ValueError:
            return json_play({"error": {"message": "the body is not JSON", "code": 400}}, 400)
        answer = self._surface.route(self, seen, body)
        return text_play("not found", 404) if answer is None else answer

    def flush(self) -> int:
        """The status of one flush: scripted ones first, then 400 while busy, then 200."""
        status = self.flush_responses.pop(0) if self.flush_responses else 0
        if not status:
            status = 400 if self.running else 200
        if status == 200:
            self.cache.clear()
        self.flushes.append((time.perf_counter(), status))
        return status

    def generate(self, seen: Seen, ask: Ask, shape: Any, too_long: Answer) -> Answer:
        """Run one generation worded by `shape(engine, generation, ask, reason)`."""
        if self.truncate:
            ask = replace(ask, max_tokens=min(ask.max_tokens, self.context - len(ask.prompt)))
        if len(ask.prompt) + ask.max_tokens > self.context:
            return too_long
        ordinal = len(self.generations)
        fault = self.faults.get(ordinal, self.faults.get(-1))
        cached = self.cache.match(ask.prompt, ask.salt) if ask.use_cache else 0
        count, reason = ask.max_tokens, "length"
        if self.eos_after is not None and not ask.ignore_eos and self.eos_after < count:
            count, reason = self.eos_after, "stop"
        output = output_ids(ask.prompt, count, diverge_at=self.diverge_at)
        answer = self._canned(ask)
        if answer is not None:
            output, reason = answer[: ask.max_tokens], "stop"
            if len(answer) > ask.max_tokens:
                reason = "length"
            count = len(output)
        steps, speculation = plan_steps(count, self.accept, self.width)
        made = Generation(
            ordinal, seen, ask.prompt, cached, tuple(output), tuple(steps), speculation
        )
        self.generations.append(made)
        if fault == "http-500":
            made.ended = fault
            return json_play({"error": {"message": "scripted failure", "code": 500}}, 500)
        if fault == "exit":
            os._exit(1)
        words: Shape = shape(self, made, ask, reason)
        return self._pieces(made, ask, words, fault)

    def _canned(self, ask: Ask) -> list[int] | None:
        """The ids of the answer whose key stands in the prompt's text; None without one."""
        if not self.canned:
            return None
        text = detokenize(ask.prompt)
        return next((tokenize(answer) for key, answer in self.canned if key in text), None)

    async def _pieces(
        self, made: Generation, ask: Ask, words: Shape, fault: str | None
    ) -> AsyncIterator[bytes]:
        try:
            async with self._free:
                async for piece in self._run(made, ask, words, fault):
                    yield piece
        finally:
            if made.ended == "running":
                made.ended = "left"

    async def _run(
        self, made: Generation, ask: Ask, words: Shape, fault: str | None
    ) -> AsyncIterator[bytes]:
        work = self.ttft_ms + self.ttft_ms_per_token * (len(ask.prompt) - made.cached_tokens)
        if len(ask.prompt) not in self._lengths:
            self._lengths.add(len(ask.prompt))
            work += self._first_extra_ms
        # Without slots to wait for, the schedule counts from the request itself.
        start = made.seen.t_request if self.slots is None else time.perf_counter()
        due = start + work / 1000.0
        fields = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        if ask.stream:
            opening = b"".join(chunk(event(p)) for p in words.opening())
            yield head(200, {**fields, "connection": "close"}) + opening
        sent, uncounted = 0, fault == "no-usage"
        for position, size in enumerate(made.steps):
            await sleep_until(due + position * self.step_ms / 1000.0)
            if fault in ("error", "cut", "reset", "stall") and sent >= self.fault_after:
                made.ended = fault
                async for piece in _fail(fault):
                    yield piece
                return
            last = position == len(made.steps) - 1
            if position == 0:
                self.cache.add(ask.prompt, ask.salt)
            made.events.append((time.perf_counter(), size))
            if self.log_steps is not None and position:
                line = f"Decode batch, #running-req: {self.running}, #token: 99, cuda graph: "
                print(f"{line}{self.log_steps == 'graph'}, #queue-req: 0", flush=True)
            if ask.stream and fault != "empty":
                for payload in words.tokens(sent, size, last):
                    yield chunk(event(_without_counts(payload) if uncounted else payload))
            sent += size
        self._count(made)
        made.ended = "finished"
        self.cache.add((*ask.prompt, *made.output), ask.salt)
        if not ask.stream:
            body = json.dumps(words.document()).encode()
            length = {"content-length": str(len(body)), "connection": "close"}
            yield head(200, {"content-type": "application/json", **length}) + body
            return
        ending = [] if fault == "empty" else words.closing()
        if uncounted:
            ending = [_without_counts(p) for p in ending]
        yield b"".join(chunk(event(p)) for p in ending) + b"0\r\n\r\n"

    def _count(self, made: Generation) -> None:
        spec = made.speculation
        for name, amount in (
            ("requests", 1),
            ("prompt", len(made.prompt)),
            ("cached", made.cached_tokens),
            ("generated", len(made.output)),
            ("V", spec.V),
            ("P", spec.P),
            ("C", spec.C),
        ):
            self.counters[name] += amount

    def text(self, ids: Sequence[int]) -> str:
        return detokenize(ids)

    def encode(self, text: str) -> list[int]:
        return tokenize(text)


async def _fail(fault: str) -> AsyncIterator[bytes]:
    if fault == "error":
        error = {"error": {"message": "scripted failure", "code": 500}}
        yield chunk(event(error)) + chunk(event("[DONE]")) + b"0\r\n\r\n"
    elif fault == "reset":
        raise Reset
    elif fault == "cut":
        raise Cut
    else:
        await asyncio.sleep(3600)


_COUNTS = (
    *("usage", "timings", "tokens_predicted", "tokens_evaluated"),
    *("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens"),
)


def _without_counts(payload: Any) -> Any:
    if not isinstance(payload, dict):
        return payload
    kept = {k: v for k, v in payload.items() if k not in _COUNTS}
    if "meta_info" in kept:
        kept["meta_info"] = _without_counts(kept["meta_info"])
    return kept
