"""vLLM: what a real one answered, and what it is asked."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from qualify.client.reply import Arrival, RawReply
from qualify.engines import counters as names
from qualify.engines.vllm import VLLMProtocol
from qualify.errors import CellError
from tests.engines.protocols import GREEDY, Desk, body_of, prompt

URL = "http://127.0.0.1:8000"
RECORDED = Path(__file__).parents[1] / "cases" / "transcripts" / "vllm_ngram"
OPENAPI = {
    "components": {"schemas": {"CompletionRequest": {"properties": {"cache_salt": {}, "n": {}}}}}
}
USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 1,
    "prompt_tokens_details": {"cached_tokens": 0},
}
CACHE = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="512",cache_dtype="auto"} 1.0\n'


def one_token(usage: dict[str, Any] = USAGE) -> str:
    choice = {"index": 0, "text": "x", "finish_reason": "length", "token_ids": [7]}
    events = [{"choices": [choice]}, {"choices": [], "usage": usage}]
    return "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"


def desk(**routes: list[tuple[int, Any]]) -> Desk:
    base: dict[str, list[tuple[int, Any]]] = {
        "/v1/models": [(200, {"data": [{"id": "served", "max_model_len": 2048}]})],
        "/v1/completions": [(200, one_token())],
        "/openapi.json": [(200, OPENAPI)],
        "/reset_prefix_cache": [(200, {"success": True})],
        "/metrics": [(200, CACHE)],
    }
    return Desk(base | {f"/{name}": answers for name, answers in routes.items()})


def asked(server: Desk) -> tuple[VLLMProtocol, Any]:
    protocol = VLLMProtocol(URL, transport=server.transport)
    return protocol, asyncio.run(protocol.capabilities())


def recorded(case: str) -> tuple[dict[str, Any], RawReply]:
    """A recorded exchange: what was asked, and the answer with its arrival times."""
    found = json.loads((RECORDED / f"{case}.json").read_text())
    chunks = tuple(Arrival(t, text.encode()) for t, text in found["chunks"])
    return found["request"], RawReply(
        status=found["status"],
        headers=tuple((k, v) for k, v in found["headers"]),
        arrivals=chunks,
        end="complete",
        detail=None,
        t_sent=0.0,
        t_headers_s=0.0,
        t_end_s=chunks[-1].t_s if chunks else 0.0,
        started_at="2026-01-01T00:00:00+00:00",
    )


def test_a_recorded_stream_is_read_with_the_servers_own_counts() -> None:
    _, raw = recorded("completions_stream_usage")
    reply = VLLMProtocol(URL, drafter="ngram").decode(raw)
    assert reply.failure is None
    assert reply.usage.completion_tokens == 24
    assert reply.usage.cached_tokens is not None
    # Several tokens come in one event under speculation: events are not tokens.
    assert len(reply.events) < 24
    # This server was not started with per-request metrics: nothing is made up.
    assert reply.speculation is None


def test_a_recorded_answer_to_token_ids_has_ids_out() -> None:
    request, raw = recorded("completions_token_ids")
    reply = VLLMProtocol(URL).decode(raw)
    assert request["body"]["prompt"] == [100, 200, 300]
    assert reply.usage.prompt_tokens == 3
    assert reply.ids == (94, 30, 198, 198)


def test_a_recorded_refusal_is_a_failure_with_its_words() -> None:
    _, raw = recorded("bad_param")
    reply = VLLMProtocol(URL).decode(raw)
    assert reply.failure is not None
    assert "max_tokens must be at least 1" in reply.failure.message


def test_a_death_in_mid_stream_is_a_failure_though_the_status_was_200() -> None:
    _, raw = recorded("completions_stream_usage")
    dead = b'data: {"error":{"message":"EngineCore died","code":500}}\n\ndata: [DONE]\n\n'
    from dataclasses import replace

    broken = replace(raw, arrivals=(*raw.arrivals[:2], Arrival(9.0, dead)))
    reply = VLLMProtocol(URL).decode(broken)
    assert reply.failure is not None
    assert reply.failure.cause == "stream-error"
    assert "EngineCore died" in reply.failure.message


def test_a_salt_of_its_own_leaves_the_cache_aside() -> None:
    protocol, able = asked(desk())
    assert able.bypass is True
    plain = body_of(protocol.encode(prompt(1, 2, 3), GREEDY, request_id="r1"))
    first = body_of(protocol.encode(prompt(1, 2, 3), GREEDY, request_id="r1", bypass_cache=True))
    second = body_of(protocol.encode(prompt(1, 2, 3), GREEDY, request_id="r2", bypass_cache=True))
    assert "cache_salt" not in plain
    assert plain["prompt"] == [1, 2, 3]
    assert plain["return_token_ids"] is True
    assert {first["cache_salt"], second["cache_salt"]} == {"r1", "r2"}
    assert {k: v for k, v in first.items() if k != "cache_salt"} == plain


def test_a_server_that_describes_no_salt_is_not_trusted_to_honour_one() -> None:
    protocol, able = asked(desk(**{"openapi.json": [(404, {})]}))
    assert able.bypass is False
    with pytest.raises(CellError, match="takes no cache_salt"):
        protocol.encode(prompt(1), GREEDY, request_id="r", bypass_cache=True)


def test_the_reset_is_offered_only_in_developer_mode() -> None:
    _, able = asked(desk())
    assert able.flush is True
    _, able = asked(desk(reset_prefix_cache=[(404, {"detail": "Not Found"})]))
    assert able.flush is False
    assert any("VLLM_SERVER_DEV_MODE=1" in note for note in able.notes)


def test_unreported_cached_tokens_are_said_and_not_taken_for_none() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": None}
    _, able = asked(desk(**{"v1/completions": [(200, one_token(usage))]}))
    assert able.cached_tokens is False
    assert any("--enable-prompt-tokens-details" in note for note in able.notes)


def test_a_reset_that_says_no_with_200_is_tried_again() -> None:
    server = desk(
        reset_prefix_cache=[
            (200, {"success": False}),
            (200, {"success": False}),
            (200, {"success": True}),
        ]
    )
    protocol = VLLMProtocol(URL, transport=server.transport)
    outcome = asyncio.run(protocol.flush(patience_s=5))
    assert (outcome.ok, outcome.status, outcome.attempts) == (True, 200, 3)
    assert outcome.waited_s >= 0.4


def test_a_reset_that_never_succeeds_is_no_flush_whatever_its_status() -> None:
    server = desk(reset_prefix_cache=[(200, {"success": False})])
    outcome = asyncio.run(VLLMProtocol(URL, transport=server.transport).flush(patience_s=0.4))
    assert outcome.ok is False
    assert outcome.status == 200


@pytest.mark.parametrize("answer", [(404, {}), (200, "")])
def test_a_reset_that_is_unknown_or_says_nothing_is_not_asked_twice(answer: Any) -> None:
    server = desk(reset_prefix_cache=[answer])
    outcome = asyncio.run(VLLMProtocol(URL, transport=server.transport).flush(patience_s=30))
    assert (outcome.ok, outcome.attempts) == (False, 1)


def test_the_pool_is_the_blocks_times_their_size() -> None:
    info = asyncio.run(VLLMProtocol(URL, transport=desk().transport).describe())
    assert (info.pool_tokens, info.context_tokens, info.model) == (8192, 2048, "served")


def test_an_engine_that_died_is_alive_and_not_ready() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(503)

    protocol = VLLMProtocol(URL, transport=httpx.MockTransport(answer))
    state = asyncio.run(protocol.readiness())
    assert (state.alive, state.ready) == (True, False)


def test_recorded_counters_have_the_common_names() -> None:
    """The counts that a real vLLM gave after its n-gram requests: 14 steps, 39 of 49 right."""
    text = (
        "# TYPE vllm:spec_decode_num_drafts_total counter\n"
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 14.0\n'
        "# TYPE vllm:spec_decode_num_draft_tokens_total counter\n"
        'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 49.0\n'
        "# TYPE vllm:spec_decode_num_accepted_tokens_total counter\n"
        'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 39.0\n'
    )
    protocol = VLLMProtocol(URL, transport=desk(metrics=[(200, text)]).transport)
    found = asyncio.run(protocol.counters())
    assert found is not None
    assert (found[names.VERIFY_STEPS], found[names.PROPOSED], found[names.CORRECT]) == (14, 49, 39)


def test_figures_of_a_request_become_integers_and_their_rates_are_left_alone() -> None:
    """PocketLLM's stress case as vLLM would tell it: 31 of 182 drafts in 26 steps of seven."""
    metrics = {
        "speculative_decoding": {
            "mean_acceptance_length": 2.19,
            "num_spec_steps": 26,
            "num_accepted_draft_tokens": 31,
            "num_draft_tokens": 182,
            "acceptance_histogram": [8, 9, 6, 2, 1, 0, 0, 0],
        }
    }
    usage = {"prompt_tokens": 512, "completion_tokens": 64}
    choice = {"index": 0, "text": "x", "finish_reason": "length", "token_ids": [7] * 64}
    from tests.engines.protocols import sse

    raw = sse({"choices": [choice]}, {"choices": [], "usage": usage, "metrics": metrics})
    spec = VLLMProtocol(URL, drafter="model").decode(raw).speculation
    assert spec is not None
    assert (spec.V, spec.P, spec.C) == (26, 182, 31)
    assert spec.histogram is not None
    assert sum(k * n for k, n in enumerate(spec.histogram)) == 31


def test_stop_texts_of_an_evaluation_reach_the_server() -> None:
    protocol, _ = asked(desk())
    sampling = replace(GREEDY, ignore_eos=False, stop=("\ndef ", "\nclass "))
    body = body_of(protocol.encode(prompt(1, 2, 3), sampling, request_id="r"))
    assert body["stop"] == ["\ndef ", "\nclass "]
    assert body["ignore_eos"] is False
    assert "stop" not in body_of(protocol.encode(prompt(1), GREEDY, request_id="r"))
