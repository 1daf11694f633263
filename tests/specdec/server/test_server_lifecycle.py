"""Abort, leaving clients, flush, and an engine that breaks; the model is a script."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import httpx
import pytest
from scripted_runner import ScriptedRunner
from server_live import Live, serve
from server_script import GREEDY, PROMPT, script, start_stream, wait_idle
from specdec.tokenizer import Tokenizer


def test_abort_by_prefix_ends_the_stream_with_an_abort_reason(slow: Live) -> None:
    _, lines = start_stream(slow, "family-1")
    _, others = start_stream(slow, "stranger")
    assert slow.client.post("/abort_request", json={"rid": "family"}).status_code == 200
    payloads = [line for line in lines if line]
    assert payloads[-1] == "data: [DONE]"
    finish = json.loads(payloads[-2].removeprefix("data: "))["meta_info"]["finish_reason"]
    assert finish["type"] == "abort"
    assert next(line for line in others if line).startswith("data: ")
    assert slow.client.post("/abort_request", json={"rid": ""}).status_code == 200
    assert not slow.engine.scheduler.idle
    assert slow.client.post("/abort_request", json={"abort_all": True}).status_code == 200
    wait_idle(slow)


def test_a_client_that_leaves_a_stream_frees_its_slot(slow: Live) -> None:
    answer, _ = start_stream(slow, "gone")
    answer.close()
    wait_idle(slow, 2.0)
    runner = slow.engine.scheduler.runner
    assert runner.free_slots == 2
    assert runner.pool.used_tokens == 0
    assert slow.engine.scheduler.totals.aborted_requests == 1


def test_a_client_that_leaves_before_its_answer_frees_its_slot(slow: Live) -> None:
    with pytest.raises(httpx.ReadTimeout):
        slow.client.post(
            "/generate",
            json={"input_ids": PROMPT, "sampling_params": {**GREEDY, "max_new_tokens": 400}},
            timeout=0.2,
        )
    wait_idle(slow, 2.0)
    assert slow.engine.scheduler.runner.free_slots == 2


def test_a_waiting_client_that_leaves_is_taken_out_of_the_queue(slow: Live) -> None:
    streams = [start_stream(slow, f"runs-{i}") for i in range(2)]
    with pytest.raises(httpx.ReadTimeout):
        slow.client.post(
            "/generate", json={"input_ids": PROMPT, "sampling_params": GREEDY}, timeout=0.2
        )
    deadline = time.monotonic() + 2
    while slow.engine.scheduler.load.queued:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    for answer, _ in streams:
        answer.close()
    wait_idle(slow)


def test_a_full_queue_is_a_503(slow: Live) -> None:
    streams = [start_stream(slow, f"runs-{i}") for i in range(2)]
    done = []

    def ask(rid: str) -> None:
        body = {"input_ids": PROMPT, "sampling_params": GREEDY, "rid": rid}
        done.append(slow.client.post("/generate", json=body).status_code)

    threads = [threading.Thread(target=ask, args=(f"waits-{i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    while slow.engine.scheduler.load.queued < 2:
        time.sleep(0.005)
    answer = slow.client.post("/generate", json={"input_ids": PROMPT})
    assert answer.status_code == 503
    for response, _ in streams:
        response.close()
    for thread in threads:
        thread.join()
    assert done == [200, 200]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_flush_is_done_when_idle_with_the_documented_text(live: Live, method: str) -> None:
    answer = live.client.request(method, "/flush_cache")
    assert answer.status_code == 200
    assert answer.text == (
        "Cache flushed.\nPlease check backend logs for more details. (When there are running or "
        "waiting requests, the operation will not be performed.)\n"
    )
    state = live.client.get("/server_info").json()["internal_states"][0]
    assert state["avg_spec_accept_length"] is None


def test_flush_is_refused_while_busy_and_patience_is_rewarded(slow: Live) -> None:
    _, lines = start_stream(slow, "busy", tokens=40)
    refused = slow.client.post("/flush_cache")
    assert (refused.status_code, refused.text) == (400, "Flush cache failed.\n")
    late = slow.client.post("/flush_cache?timeout=0.05")
    assert (late.status_code, late.text) == (400, "Timed out waiting for idle state.\n")
    assert slow.client.post("/flush_cache?timeout=20").status_code == 200
    assert slow.engine.scheduler.idle
    assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_second_flush_does_not_wait_for_the_first(slow: Live) -> None:
    answer, _ = start_stream(slow, "busy")
    first: list[int] = []
    thread = threading.Thread(
        target=lambda: first.append(slow.client.post("/flush_cache?timeout=20").status_code)
    )
    thread.start()
    time.sleep(0.1)
    second = slow.client.post("/flush_cache?timeout=20")
    assert (second.status_code, second.text) == (
        400,
        "Another flush_cache is already in progress.\n",
    )
    answer.close()
    thread.join()
    assert first == [200]


@pytest.mark.parametrize("timeout", ["-1", "nan", "inf", "soon", "1e99"])
def test_an_absurd_flush_timeout_is_refused(live: Live, timeout: str) -> None:
    answer = live.client.post("/flush_cache", params={"timeout": timeout})
    assert answer.status_code == 400
    assert "timeout" in answer.json()["error"]["message"]


def test_generate_flush_generate_goes_on_and_on(live: Live) -> None:
    for _ in range(20):
        answer = live.generate(input_ids=PROMPT, sampling_params=GREEDY)
        assert answer["output_ids"] == script(PROMPT, 24)
        assert live.client.post("/flush_cache?timeout=5").status_code == 200


def test_a_broken_engine_tells_every_client_and_is_no_longer_healthy(tokenizer: Tokenizer) -> None:
    bad = threading.Event()

    def before_step() -> None:
        if bad.is_set():
            raise RuntimeError("the device is lost")

    runner = ScriptedRunner(pause_s=0.01, before_step=before_step)
    with serve(lambda: runner, tokenizer) as live:
        _, lines = start_stream(live, "a")
        bad.set()
        payloads = [line for line in lines if line]
        assert payloads[-1] == "data: [DONE]"
        assert (
            "the device is lost"
            in json.loads(payloads[-2].removeprefix("data: "))["error"]["message"]
        )
        assert live.client.get("/health").status_code == 503
        assert live.client.get("/health_generate").status_code == 503
        answer = live.client.post("/generate", json={"input_ids": PROMPT})
        assert answer.status_code == 503
        assert live.client.post("/flush_cache").status_code == 503
        assert live.client.post("/abort_request", json={"rid": "a"}).status_code == 503


def test_a_load_that_fails_is_raised_to_whoever_started_the_engine(tokenizer: Tokenizer) -> None:
    from specdec.engine import Engine

    def load() -> ScriptedRunner:
        raise ValueError("no such checkpoint")

    async def start() -> None:
        await Engine(load, tokenizer).start()

    with pytest.raises(ValueError, match="no such checkpoint"):
        asyncio.run(start())
