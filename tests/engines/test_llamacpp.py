"""llama.cpp's surface: what is sent, what is read, and its misleading words."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from qualify.engines.llamacpp import LlamaCppProtocol
from qualify.errors import CellError
from qualify.records.codec import to_line
from tests.engines.protocols import GREEDY, Desk, body_of, prompt, sse

URL = "http://127.0.0.1:8080"


def llamacpp(desk: Desk | None = None, **options: Any) -> LlamaCppProtocol:
    return LlamaCppProtocol(URL, transport=(desk or Desk({})).transport, **options)


def token(n: int, draft: tuple[int, int] | None = None, **more: Any) -> dict[str, Any]:
    timings: dict[str, Any] = {"cache_n": 0, "prompt_n": 3, "predicted_n": n}
    if draft is not None:
        timings |= {"draft_n": draft[0], "draft_n_accepted": draft[1]}
    return {
        "content": chr(96 + n),
        "tokens": [n],
        "stop": False,
        "tokens_predicted": n,
        "tokens_evaluated": 3,
        "timings": timings,
        **more,
    }


def end(n: int, draft: tuple[int, int] | None = None, **more: Any) -> dict[str, Any]:
    last = token(n, draft) | {"content": "", "tokens": [], "stop": True, "stop_type": "limit"}
    return last | {"tokens_cached": 8, "truncated": False} | more


def test_loading_is_alive_and_not_ready() -> None:
    loading = {"error": {"code": 503, "message": "Loading model"}}
    state = asyncio.run(llamacpp(Desk({"/health": [(503, loading)]})).readiness())
    assert (state.alive, state.ready, state.detail) == (True, False, "503: Loading model")


def test_f071_a_request_carries_ids_and_every_sampling_field() -> None:
    body = body_of(llamacpp().encode(prompt(5, 6, 7), GREEDY, request_id="r"))
    assert body["prompt"] == [5, 6, 7]
    assert (body["n_predict"], body["ignore_eos"], body["temperature"]) == (64, True, 0.0)
    assert (body["top_k"], body["min_p"], body["repeat_penalty"]) == (0, 0.0, 1.0)
    assert (body["stream"], body["return_tokens"], body["timings_per_token"]) == (True,) * 3
    assert body["cache_prompt"] is True


def test_a_bypass_neither_reads_nor_needs_the_cache() -> None:
    request = llamacpp().encode(prompt(5), GREEDY, request_id="r", bypass_cache=True)
    assert body_of(request)["cache_prompt"] is False


def test_text_goes_out_only_when_it_is_proven_exact() -> None:
    exact = llamacpp().encode(prompt(text="abc", exact=True), GREEDY, request_id="r")
    assert body_of(exact)["prompt"] == "abc"
    with pytest.raises(CellError, match="not proven exact"):
        llamacpp().encode(prompt(text="abc"), GREEDY, request_id="r")


def test_reuse_is_read_from_the_timings_and_not_from_tokens_cached() -> None:
    reply = llamacpp(drafter="none").decode(sse(token(1), token(2), end(2)))
    assert reply.failure is None
    assert reply.extras["tokens_cached"] == 8
    assert (reply.usage.cached_tokens, reply.usage.prompt_tokens) == (0, 3)
    assert reply.speculation is None


def test_each_rise_of_the_running_draft_count_is_a_verify_step() -> None:
    events = [
        token(1),
        *(token(n, (4, 2)) for n in (2, 3, 4)),  # one step: two drafts right, and its own
        token(5, (4, 2)),  # a plain step
        token(6, (8, 2)),  # a step whose drafts were all wrong
        end(6, (8, 2)),
    ]
    spec = llamacpp(drafter="ngram").decode(sse(*events)).speculation
    assert spec is not None
    assert (spec.V, spec.P, spec.C, spec.T, spec.W) == (2, 8, 2, 1, 0)
    assert spec.histogram == (1, 0, 1)


def test_an_ngram_launch_that_proposed_nothing_reports_no_drafts() -> None:
    spec = llamacpp(drafter="ngram").decode(sse(token(1), token(2), end(2))).speculation
    assert spec is not None
    assert (spec.V, spec.P, spec.C, spec.T) == (0, 0, 0, 1)


def test_an_answer_that_reached_the_end_of_the_context_is_noted() -> None:
    reply = llamacpp().decode(sse(token(1), end(1, truncated=True)))
    assert any("truncated" in note for note in reply.notes)


def test_there_is_no_flush_and_it_says_so() -> None:
    outcome = asyncio.run(llamacpp().flush(patience_s=60))
    assert (outcome.ok, outcome.status, outcome.attempts) == (False, None, 0)


def test_the_pool_is_the_sum_of_the_slots() -> None:
    desk = Desk(
        {
            "/props": [(200, {"total_slots": 2, "default_generation_settings": {"n_ctx": 4096}})],
            "/slots": [(200, [{"n_ctx": 4096}, {"n_ctx": 4096}])],
            "/v1/models": [(200, {"data": [{"id": "m"}]})],
        }
    )
    info = asyncio.run(llamacpp(desk).describe())
    assert (info.model, info.context_tokens, info.pool_tokens, info.max_running) == (
        "m",
        4096,
        8192,
        2,
    )


def test_what_the_server_does_not_say_is_none() -> None:
    info = asyncio.run(llamacpp().describe())
    assert (info.model, info.context_tokens, info.pool_tokens) == (None, None, None)
    assert asyncio.run(llamacpp().counters()) is None


def test_numbers_that_are_none_are_unknown_sizes_and_stay_out_of_what_is_kept() -> None:
    said = '{"total_slots": Infinity, "default_generation_settings": {"n_ctx": NaN}, "x": 1e999}'
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=said))
    info = asyncio.run(LlamaCppProtocol(URL, transport=transport).describe())
    assert (info.context_tokens, info.max_running) == (None, None)
    assert info.raw["props"] == {
        "total_slots": None,
        "default_generation_settings": {"n_ctx": None},
        "x": None,
    }
    to_line(info)  # raises on NaN


@pytest.mark.parametrize("data", [[1, "x", None], {"id": "x"}, "x"])
def test_a_list_of_models_that_holds_none_names_none(data: Any) -> None:
    info = asyncio.run(llamacpp(Desk({"/v1/models": [(200, {"data": data})]})).describe())
    assert info.model is None
