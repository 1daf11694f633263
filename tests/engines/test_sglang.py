"""SGLang's surface, old and new, as its versions answer."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import httpx
import pytest

from qualify.engines.protocol import FlushOutcome, Sampling
from qualify.engines.sglang import SGLangProtocol
from qualify.errors import CellError
from tests.engines.protocols import GREEDY, Desk, body_of, prompt, sse

URL = "http://127.0.0.1:30000"


def sglang(desk: Desk, **options: Any) -> SGLangProtocol:
    return SGLangProtocol(URL, transport=desk.transport, **options)


def test_f040_a_flush_that_is_refused_is_retried_with_patience() -> None:
    busy = "Another flush_cache is already in progress."
    times: list[float] = []
    desk = Desk({"/flush_cache": [(400, busy)] * 5 + [(200, "Cache flushed.\n")]})

    def timed(request: httpx.Request) -> httpx.Response:
        times.append(time.monotonic())
        return desk(request)

    protocol = SGLangProtocol(URL, transport=httpx.MockTransport(timed))
    outcome = asyncio.run(protocol.flush(patience_s=10))
    assert (outcome.ok, outcome.status, outcome.attempts) == (True, 200, 6)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert min(gaps) >= 0.2
    assert outcome.waited_s >= sum(gaps)


def test_a_flush_that_is_never_granted_ends_with_the_last_answer() -> None:
    refused = "Cache not flushed because there are pending requests. #queue-req: 0, #running-req: 1"
    desk = Desk({"/flush_cache": [(400, refused)]})
    began = time.monotonic()
    outcome = asyncio.run(sglang(desk).flush(patience_s=0.8))
    assert (outcome.ok, outcome.status, outcome.body) == (False, 400, refused)
    assert 2 <= outcome.attempts <= 4
    assert time.monotonic() - began < 2


def test_a_flush_that_needs_a_key_is_not_asked_for_again() -> None:
    outcome = asyncio.run(sglang(Desk({"/flush_cache": [(401, "no")]})).flush(patience_s=30))
    assert outcome == FlushOutcome(False, 401, "no", 1, outcome.waited_s)


def test_a_new_server_is_asked_whether_it_is_ready() -> None:
    desk = Desk({"/ready": [(503, ""), (200, "")]})
    protocol = sglang(desk)

    async def run() -> None:
        first, second = await protocol.readiness(), await protocol.readiness()
        assert (first.alive, first.ready) == (True, False)
        assert second.ready

    asyncio.run(run())
    assert set(desk.paths()) == {"/ready"}


def test_a_health_probe_that_generates_is_never_sent_to_a_cold_server() -> None:
    desk = Desk({"/health": [(200, "")], "/get_model_info": [(200, {"model_path": "m"})]})
    assert asyncio.run(sglang(desk).readiness()).ready
    assert desk.paths() == ["/ready", "/model_info", "/get_model_info"]


def test_a_health_probe_that_was_made_harmless_is_used() -> None:
    desk = Desk({"/health": [(503, "")], "/model_info": [(200, {})]})
    assert not asyncio.run(sglang(desk, health_generates=False).readiness()).ready
    assert desk.paths() == ["/ready", "/health"]


def test_nobody_there_is_neither_alive_nor_ready() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    protocol = SGLangProtocol(URL, transport=httpx.MockTransport(refuse))
    state = asyncio.run(protocol.readiness())
    assert (state.alive, state.ready) == (False, False)
    assert "refused" in state.detail


def test_an_older_server_is_described_through_its_older_routes() -> None:
    desk = Desk(
        {
            "/get_server_info": [
                (
                    200,
                    {
                        "max_total_num_tokens": 1048576,
                        "context_length": 262144,
                        "max_running_requests": 48,
                        "version": "0.5.17",
                        "internal_states": [{"effective_max_running_requests_per_dp": 8}],
                        "disable_radix_cache": True,
                    },
                )
            ],
            "/get_model_info": [(200, {"model_path": "/m", "architectures": ["Qwen3_5"]})],
        }
    )

    async def run() -> None:
        protocol = sglang(desk)
        info = await protocol.describe()
        assert (info.model, info.architecture) == ("/m", "Qwen3_5")
        assert (info.context_tokens, info.pool_tokens, info.max_running) == (262144, 1048576, 8)
        assert (await protocol.capabilities()).no_prefix_cache

    asyncio.run(run())


def test_what_a_server_does_not_say_is_none() -> None:
    info = asyncio.run(sglang(Desk({})).describe())
    assert (info.model, info.pool_tokens, info.max_running, info.version) == (None,) * 4


def test_f071_a_request_carries_ids_and_every_sampling_field() -> None:
    request = sglang(Desk({})).encode(prompt(5, 6, 7), GREEDY, request_id="r1")
    assert request.url == f"{URL}/generate"
    body = body_of(request)
    assert body["input_ids"] == [5, 6, 7]
    assert "text" not in body
    assert (body["rid"], body["stream"]) == ("r1", True)
    assert body["sampling_params"] == {
        "max_new_tokens": 64,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": True,
    }
    seeded = Sampling(output_tokens=4, temperature=0.7, top_k=20, seed=3, ignore_eos=False)
    params = body_of(sglang(Desk({})).encode(prompt(5), seeded, request_id="r"))["sampling_params"]
    assert (params["sampling_seed"], params["top_k"], params["ignore_eos"]) == (3, 20, False)


def test_a_prompt_that_is_not_exact_is_refused() -> None:
    with pytest.raises(CellError, match="not proven exact"):
        sglang(Desk({})).encode(prompt(), GREEDY, request_id="r")


def test_a_bypass_that_does_not_exist_is_refused() -> None:
    with pytest.raises(CellError, match="Flush before"):
        sglang(Desk({})).encode(prompt(1), GREEDY, request_id="r", bypass_cache=True)


META = {"id": "r1", "finish_reason": None, "prompt_tokens": 3, "cached_tokens": 0}
FINAL = {
    **META,
    "finish_reason": {"type": "length", "length": 6},
    "completion_tokens": 6,
    "num_retractions": 1,
    "spec_verify_ct": 2,
    "spec_num_correct_drafts": 3,
    "spec_num_proposed_drafts": 14,
}
STREAM = sse(
    {"text": "a", "output_ids": [9], "meta_info": {**META, "completion_tokens": 1}},
    {"text": "abcdef", "output_ids": [9, 8, 7, 6, 5, 4], "meta_info": FINAL},
)


def test_a_stream_is_folded_with_its_speculation_and_a_retraction_is_noted() -> None:
    reply = sglang(Desk({}), drafter="model").decode(STREAM)
    assert reply.failure is None
    assert reply.ids == (9, 8, 7, 6, 5, 4)
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens) == (3, 0)
    assert reply.speculation is not None
    assert (reply.speculation.V, reply.speculation.P, reply.speculation.C) == (2, 14, 3)
    assert any("retracted 1 times" in note for note in reply.notes)


def test_a_target_only_launch_has_no_speculation_whatever_it_counts() -> None:
    assert sglang(Desk({}), drafter="none").decode(STREAM).speculation is None


def test_an_abort_without_an_id_is_never_sent() -> None:
    desk = Desk({"/abort_request": [(200, "")]})

    async def run() -> None:
        protocol = sglang(desk)
        assert not await protocol.abort("")
        assert desk.asked == []
        assert await protocol.abort("r1")

    asyncio.run(run())
    assert desk.asked == [("POST", "/abort_request", {"rid": "r1"})]


def test_counters_are_none_when_metrics_are_off_and_common_when_they_are_on() -> None:
    metrics = "# TYPE sglang:spec_verify_calls_total counter\nsglang:spec_verify_calls_total 4\n"
    assert asyncio.run(sglang(Desk({})).counters()) is None
    on = asyncio.run(sglang(Desk({"/metrics": [(200, metrics)]})).counters())
    assert on == {"sglang:spec_verify_calls_total": 4.0, "verify_steps": 4.0}
