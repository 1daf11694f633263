"""llama.cpp's own server with SmolLM2-135M: what the protocol promises, kept by a real engine.

Two servers (target-only and ngram) live for the whole file; every request is small.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from qualify.client.reply import Arrival, RawReply, Reply
from qualify.engines.counters import CORRECT, OUTPUT, PROPOSED, STEPS, VERIFY_STEPS, difference
from qualify.engines.fetch import ensure_model
from qualify.engines.protocol import Sampling
from qualify.engines.ready import Ready, wait_ready
from qualify.engines.resolve import resolve
from qualify.engines.server import RunningServer, launch
from qualify.engines.spec import load_engine
from qualify.prompts.prompt import Prompt

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.engine

CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\n"
COPY = CODE * 3 + "The same again:\n" + CODE + "def add(a, b):"
PROSE = "It was late in the year when the letter came, and nobody in the house could say who"
GREEDY = Sampling(output_tokens=32)


@dataclass
class Live:
    """A server that lives in a loop of its own thread; `call` runs a coroutine there."""

    loop: asyncio.AbstractEventLoop
    server: RunningServer
    ready: Ready
    done: asyncio.Event

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def ids(self, text: str) -> tuple[int, ...]:
        url = f"{self.server.base_url}/tokenize"
        answer = httpx.post(url, json={"content": text}, timeout=30)
        return tuple(answer.json()["tokens"])

    def ask(self, ids: tuple[int, ...], sampling: Sampling = GREEDY, bypass: bool = True) -> Reply:
        prompt = Prompt("x", ids, "", False, "", 0.5, "natural", 0)
        request = self.server.protocol.encode(prompt, sampling, request_id="r", bypass_cache=bypass)
        arrivals = []
        with httpx.stream(
            "POST", request.url, headers=dict(request.headers), content=request.body, timeout=120
        ) as answer:
            arrivals = [Arrival(0.0, data) for data in answer.iter_raw()]
            headers = tuple(answer.headers.items())
        raw = RawReply(
            answer.status_code, headers, tuple(arrivals), "complete", None, 0.0, 0.0, 0.0, "now"
        )
        return self.server.protocol.decode(raw)


def live(mode: str, folder: Path) -> Iterator[Live]:
    spec = load_engine("llama-cpp")
    model = ensure_model(spec)
    args = {"spec-draft-model": str(model)} if mode == "draft-model" else {}
    got: Future[Live] = Future()

    async def serve() -> None:
        try:
            async with launch(resolve(spec, mode, args=dict(args)), folder, mode) as server:
                ready = await wait_ready(server, timeout_s=60)
                done = asyncio.Event()
                got.set_result(Live(asyncio.get_running_loop(), server, ready, done))
                await done.wait()
        except BaseException as error:
            if not got.done():
                got.set_exception(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    running = got.result(90)
    try:
        yield running
    finally:
        running.loop.call_soon_threadsafe(running.done.set)
        thread.join(30)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    yield from live("target-only", tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def ngram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    yield from live("ngram", tmp_path_factory.mktemp("ngram"))


def test_it_is_ready_ours_and_names_its_model(target: Live) -> None:
    assert target.ready.ours is True
    assert target.ready.model == "smollm2-135m"
    info = target.call(target.server.protocol.describe())
    profile = target.server.resolved.profile
    assert info.context_tokens == profile.context_tokens
    assert info.pool_tokens == profile.pool_tokens
    assert info.max_running == profile.max_running


def test_ids_go_in_exactly_and_come_out_one_for_each_token(target: Live) -> None:
    ids = target.ids(PROSE)
    reply = target.ask(ids)
    assert reply.failure is None
    assert reply.usage.prompt_tokens == len(ids)
    assert reply.usage.completion_tokens == 32
    assert reply.ids is not None
    assert len(reply.ids) == 32
    assert reply.finish_reason == "length"


def test_a_bypass_is_cold_where_a_planted_warm_prompt_was_not(target: Live) -> None:
    ids = target.ids(CODE * 2)
    target.ask(ids, bypass=False)
    warm, cold = target.ask(ids, bypass=False), target.ask(ids, bypass=True)
    assert warm.usage.cached_tokens is not None
    assert warm.usage.cached_tokens >= len(ids) - 1
    assert cold.usage.cached_tokens == 0
    assert warm.ids == cold.ids


def test_a_target_only_server_repeats_itself(target: Live) -> None:
    ids = target.ids(PROSE)
    assert target.ask(ids).ids == target.ask(ids).ids


def test_ngram_counts_agree_between_the_stream_and_the_servers_own_counters(ngram: Live) -> None:
    protocol = ngram.server.protocol
    before = ngram.call(protocol.counters())
    reply = ngram.ask(ngram.ids(COPY))
    change = difference(before, ngram.call(protocol.counters()))
    spec = reply.speculation
    assert spec is not None
    assert spec.V
    assert spec.P
    assert spec.C
    assert change.count(VERIFY_STEPS) == spec.V
    assert change.count(PROPOSED) == spec.P
    assert change.count(CORRECT) == spec.C
    assert change.count(OUTPUT) == 32
    # Its count of forwards is independent of the stream: N0 + V + T.
    assert spec.T is not None
    assert change.count(STEPS) == 1 + spec.V + spec.T
    assert 1 + spec.C + spec.V + spec.T - (spec.W or 0) == 32
    assert spec.histogram is not None
    assert sum(j * h for j, h in enumerate(spec.histogram)) == spec.C


def test_ngram_gives_the_same_ids_on_a_copy(target: Live, ngram: Live) -> None:
    ids = target.ids(COPY)
    assert ngram.ask(ids).ids == target.ask(ids).ids


def test_a_drafter_that_is_the_target_itself_is_always_right(target: Live, tmp_path: Path) -> None:
    ids = target.ids(PROSE)
    for drafted in live("draft-model", tmp_path):
        reply = drafted.ask(ids)
    assert reply.ids == target.ask(ids).ids
    spec = reply.speculation
    assert spec is not None
    assert spec.C == spec.P
    assert None not in (spec.N0, spec.C, spec.V, spec.T, spec.W)
    # The identity is what makes an acceptance of exactly 1.0 believable (rule 9).
    assert spec.N0 + spec.C + spec.V + spec.T - spec.W == 32  # type: ignore[operator]


def test_a_prompt_beyond_the_context_is_a_failure_and_not_a_fast_success(target: Live) -> None:
    reply = target.ask(tuple([100] * 5000))
    assert reply.failure is not None
    assert reply.failure.cause == "http-status"
    assert reply.status == 400


def test_it_stops_in_order_and_leaves_nothing(tmp_path: Path) -> None:
    spec = load_engine("llama-cpp")
    ensure_model(spec)

    async def run() -> tuple[RunningServer, int]:
        async with launch(resolve(spec, "target-only"), tmp_path, "a") as server:
            await wait_ready(server, timeout_s=60)
            assert server.pid is not None
            pid = server.pid
        return server, pid

    server, pid = asyncio.run(run())
    assert str(server.exit) == "exit code 0"
    assert not psutil.pid_exists(pid)
    assert "serve.py: stopping" in server.log_tail()
