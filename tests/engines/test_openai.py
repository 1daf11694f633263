"""Plain OpenAI servers: what each takes is found by asking."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from qualify.engines.openai import OpenAIProtocol
from qualify.engines.openai_forms import PROBE_IDS
from qualify.engines.protocol import Sampling
from qualify.errors import CellError
from tests.engines.protocols import GREEDY, Desk, body_of, prompt, sse

URL = "http://127.0.0.1:8000"
Judge = Callable[[dict[str, Any]], httpx.Response]


def stream(prompt_tokens: int, *, ids: bool = False, usage: bool = True) -> httpx.Response:
    choice = {"index": 0, "text": "x", "finish_reason": "length"} | (
        {"token_ids": [7]} if ids else {}
    )
    events: list[Any] = [{"object": "text_completion", "choices": [choice]}]
    if usage:
        counts = {"prompt_tokens": prompt_tokens, "completion_tokens": 1}
        events.append({"object": "text_completion", "choices": [], "usage": counts})
    text = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
    return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})


def server(judge: Judge, **options: Any) -> OpenAIProtocol:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/completions":
            return judge(json.loads(request.content))
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "served", "max_model_len": 4096}]})
        return httpx.Response(404)

    return OpenAIProtocol(URL, transport=httpx.MockTransport(answer), **options)


def full(body: dict[str, Any]) -> httpx.Response:
    return stream(len(body["prompt"]), ids="return_token_ids" in body)


def strict(body: dict[str, Any]) -> httpx.Response:
    """Takes ids, and refuses every key that OpenAI does not have."""
    if {"ignore_eos", "return_token_ids"} & set(body):
        return httpx.Response(400, json={"error": {"message": "Unrecognized key"}})
    return stream(len(body["prompt"]))


def text_only(body: dict[str, Any]) -> httpx.Response:
    """Falls over on ids, as llama-cpp-python's server does."""
    if isinstance(body["prompt"], list):
        return httpx.Response(500, json={"error": {"message": "internal"}})
    return stream(4)


def deaf_to_ids(body: dict[str, Any]) -> httpx.Response:
    """Answers 200 to ids, and reads something else in them."""
    return stream(9 if isinstance(body["prompt"], list) else 4)


def test_a_full_server_takes_ids_and_gives_them_back() -> None:
    async def run() -> None:
        protocol = server(full)
        able = await protocol.capabilities()
        assert (able.token_ids_in, able.token_ids_out, able.notes) == (True, True, ())
        body = body_of(protocol.encode(prompt(5, 6), GREEDY, request_id="r"))
        assert body["prompt"] == [5, 6]
        assert body["model"] == "served"
        assert body["stream_options"] == {"include_usage": True}
        assert (body["ignore_eos"], body["return_token_ids"]) == (True, True)

    asyncio.run(run())


def test_a_strict_server_is_asked_without_extensions() -> None:
    async def run() -> None:
        protocol = server(strict)
        able = await protocol.capabilities()
        assert (able.token_ids_in, able.token_ids_out) == (True, False)
        assert able.notes == ("ignore_eos is refused",)
        with pytest.raises(CellError, match="refuses ignore_eos"):
            protocol.encode(prompt(5), GREEDY, request_id="r")
        natural = Sampling(output_tokens=8, ignore_eos=False)
        body = body_of(protocol.encode(prompt(5), natural, request_id="r"))
        assert not {"ignore_eos", "return_token_ids", "top_k", "seed"} & set(body)

    asyncio.run(run())


@pytest.mark.parametrize("judge", [text_only, deaf_to_ids])
def test_a_server_that_does_not_read_ids_gets_text_proven_exact_or_a_refusal(judge: Judge) -> None:
    async def run() -> None:
        protocol = server(judge)
        assert not (await protocol.capabilities()).token_ids_in
        body = body_of(protocol.encode(prompt(1, 2, text="ab", exact=True), GREEDY, request_id="r"))
        assert body["prompt"] == "ab"
        with pytest.raises(CellError, match="not proven to re-tokenise to its 2 tokens"):
            protocol.encode(prompt(1, 2), GREEDY, request_id="r")

    asyncio.run(run())


def test_a_server_without_usage_in_its_streams_cannot_be_measured() -> None:
    protocol = server(lambda body: stream(len(body["prompt"]), usage=False))
    with pytest.raises(CellError, match="streamed request with usage"):
        asyncio.run(protocol.capabilities())


def test_the_first_probe_is_the_richest_and_asks_for_one_token() -> None:
    bodies: list[dict[str, Any]] = []

    def judge(body: dict[str, Any]) -> httpx.Response:
        bodies.append(body)
        return full(body)

    asyncio.run(server(judge).capabilities())
    (body,) = bodies
    assert body["prompt"] == list(PROBE_IDS)
    assert body["max_tokens"] == 1


def test_encoding_before_asking_is_refused() -> None:
    with pytest.raises(CellError, match="not asked yet"):
        server(full).encode(prompt(1), GREEDY, request_id="r")


def test_readiness_generates_nothing() -> None:
    desk = Desk({"/v1/models": [(503, {}), (200, {"data": []})]})
    protocol = OpenAIProtocol(URL, transport=desk.transport)

    async def run() -> None:
        assert not (await protocol.readiness()).ready
        assert (await protocol.readiness()).ready

    asyncio.run(run())
    assert {method for method, _, _ in desk.asked} == {"GET"}


def test_the_named_model_is_found_among_several() -> None:
    models = {"data": [{"id": "a"}, {"id": "b", "max_model_len": 77}]}
    protocol = OpenAIProtocol(
        URL, model="b", transport=Desk({"/v1/models": [(200, models)]}).transport
    )
    info = asyncio.run(protocol.describe())
    assert (info.model, info.context_tokens) == ("b", 77)


def test_vllms_metrics_on_the_usage_event_become_speculation() -> None:
    choice = {"index": 0, "text": " a b", "finish_reason": "length", "token_ids": [5, 6]}
    spec = {"num_spec_steps": 26, "num_accepted_draft_tokens": 31, "num_draft_tokens": 182}
    raw = sse(
        {"object": "text_completion", "choices": [choice]},
        {
            "object": "text_completion",
            "choices": [],
            "usage": {"prompt_tokens": 512, "completion_tokens": 2},
            "metrics": {"speculative_decoding": spec},
        },
    )
    reply = OpenAIProtocol(URL, drafter="model").decode(raw)
    assert reply.speculation is not None
    assert (reply.speculation.V, reply.speculation.P, reply.speculation.C) == (26, 182, 31)
    assert OpenAIProtocol(URL, drafter="none").decode(raw).speculation is None


def test_vllms_counters_get_the_common_names() -> None:
    text = (
        "# TYPE vllm:spec_decode_num_drafts_total counter\n"
        'vllm:spec_decode_num_drafts_total{engine="0"} 3\n'
    )
    protocol = OpenAIProtocol(URL, transport=Desk({"/metrics": [(200, text)]}).transport)
    counters = asyncio.run(protocol.counters())
    assert counters is not None
    assert counters["verify_steps"] == 3.0
