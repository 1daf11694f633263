"""The HTTP surface over real sockets; the model is a script, so every answer is known."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from live import Live, serve, with_settings
from scripted_runner import EOS, ScriptedRunner, next_token
from specdec.request import Finish
from specdec.tokenizer import Tokenizer

PROMPT = [40, 41, 42, 43]
GREEDY = {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}


def script(prompt: list[int], tokens: int) -> list[int]:
    sequence = list(prompt)
    for _ in range(tokens):
        sequence.append(next_token(sequence, 384))
    return sequence[len(prompt) :]


@pytest.fixture(scope="module")
def live(tokenizer: Tokenizer) -> Iterator[Live]:
    runner = ScriptedRunner(drafts=3)
    settings = with_settings(enable_metrics=True, decode_log_interval=4, enable_cache_report=True)
    with serve(lambda: runner, tokenizer, settings) as server:
        yield server


@pytest.fixture
def slow(tokenizer: Tokenizer) -> Iterator[Live]:
    runner = ScriptedRunner(pause_s=0.01, slots=2)
    with serve(lambda: runner, tokenizer, with_settings(max_queued_requests=2)) as server:
        yield server


def wait_idle(live: Live, limit_s: float = 5.0) -> None:
    deadline = time.monotonic() + limit_s
    while not live.engine.scheduler.idle:
        assert time.monotonic() < deadline, "requests are still there"
        time.sleep(0.005)


# -- liveness and facts ---------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/health", "/ready", "/ping", "/health_generate"])
def test_a_server_that_is_up_says_so(live: Live, path: str) -> None:
    answer = live.client.get(path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_health_never_generates_and_health_generate_does(live: Live) -> None:
    before = live.engine.scheduler.totals.output_tokens
    live.client.get("/health")
    assert live.engine.scheduler.totals.output_tokens == before
    live.client.get("/health_generate")
    assert live.engine.scheduler.totals.output_tokens == before + 1


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info"])
def test_model_info_names_the_model(live: Live, path: str) -> None:
    facts = live.client.get(path).json()
    assert facts["served_model_name"] == "tiny"
    assert facts["is_generation"] is True
    assert facts["model_path"] == facts["tokenizer_path"] == "checkpoint"


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_server_info_has_settings_limits_and_state(live: Live, path: str) -> None:
    live.generate(input_ids=PROMPT, sampling_params=GREEDY)
    facts = live.client.get(path).json()
    assert facts["max_total_num_tokens"] == 1024
    assert facts["max_req_input_len"] == 511
    assert facts["max_running_requests"] == 4
    assert facts["disable_radix_cache"] is True
    assert facts["decode_log_interval"] == 4
    assert facts["speculative_num_steps"] == 3
    state = facts["internal_states"][0]
    expected = 1 + state["spec_num_correct_drafts"] / state["spec_verify_ct"]
    assert state["avg_spec_accept_length"] == pytest.approx(expected)


def test_models_lists_the_one_model(live: Live) -> None:
    (card,) = live.client.get("/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"]) == ("tiny", 512)


def test_an_unknown_path_is_a_sentence(live: Live) -> None:
    answer = live.client.get("/nothing/here")
    assert answer.status_code == 404
    assert "no '/nothing/here'" in answer.json()["error"]["message"]
    assert live.client.get("/generate").status_code == 405


# -- /generate ------------------------------------------------------------------------------


def test_generate_answers_with_ids_text_and_counts(live: Live, tokenizer: Tokenizer) -> None:
    answer = live.generate(input_ids=PROMPT, sampling_params=GREEDY, rid="mine")
    meta = answer["meta_info"]
    assert answer["output_ids"] == script(PROMPT, 24)
    assert answer["text"] == tokenizer.decode(answer["output_ids"])
    assert meta["id"] == "mine"
    assert meta["finish_reason"] == {"type": "length", "length": 24}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (4, 24)
    assert (meta["cached_tokens"], meta["num_retractions"]) == (0, 0)
    assert meta["cached_tokens_details"] == {"device": 0, "host": 0}
    assert meta["e2e_latency"] > 0


def test_the_speculation_names_keep_their_meanings_and_the_integers_add_up(live: Live) -> None:
    meta = live.generate(input_ids=PROMPT, sampling_params=GREEDY)["meta_info"]
    verify, correct = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    assert verify > 0
    assert correct > 0
    assert meta["spec_accept_length"] == pytest.approx(24 / verify)
    assert meta["spec_accept_rate"] == pytest.approx(correct / meta["spec_num_proposed_drafts"])
    histogram = meta["spec_correct_drafts_histogram"]
    assert sum(histogram) == verify
    assert sum(index * count for index, count in enumerate(histogram)) == correct
    assert (meta["verify_steps"], meta["correct_drafts"]) == (verify, correct)
    assert meta["correct_drafts_histogram"] == histogram
    gained = meta["prefill_tokens"] + correct + verify + meta["plain_tokens"]
    assert gained - meta["trimmed_tokens"] == meta["completion_tokens"] == 24


def test_without_verification_there_are_no_speculation_names(live: Live) -> None:
    meta = live.generate(input_ids=PROMPT, sampling_params={**GREEDY, "max_new_tokens": 1})
    names = [name for name in meta["meta_info"] if name.startswith("spec_")]
    assert names == []
    assert meta["meta_info"]["verify_steps"] == 0


def test_text_and_its_ids_are_the_same_prompt(live: Live, tokenizer: Tokenizer) -> None:
    text = "The river was wide."
    by_text = live.generate(text=text, sampling_params=GREEDY)
    by_ids = live.generate(input_ids=tokenizer.encode(text), sampling_params=GREEDY)
    assert by_text["output_ids"] == by_ids["output_ids"]


def test_a_list_of_prompts_gives_a_list_of_results(live: Live) -> None:
    prompts = [[40 + i, 50, 60] for i in range(5)]
    params = [{**GREEDY, "max_new_tokens": 3 + i} for i in range(5)]
    answers = live.client.post(
        "/generate", json={"input_ids": prompts, "sampling_params": params, "rid": "many"}
    ).json()
    assert [a["output_ids"] for a in answers] == [script(p, 3 + i) for i, p in enumerate(prompts)]
    assert [a["meta_info"]["id"] for a in answers] == [f"many_{i}" for i in range(5)]


def test_a_stream_is_cumulative_and_has_one_event_for_each_step(live: Live) -> None:
    events = live.events(
        "/generate", {"input_ids": PROMPT, "sampling_params": GREEDY, "stream": True}
    )
    expected = script(PROMPT, 24)
    for event in events:
        count = event["meta_info"]["completion_tokens"]
        assert event["output_ids"] == expected[:count]
    counts = [event["meta_info"]["completion_tokens"] for event in events]
    assert counts[0] == 1
    assert counts == sorted(set(counts))
    meta = events[-1]["meta_info"]
    assert len(events) == 1 + meta["verify_steps"] + meta["plain_tokens"]
    assert "spec_verify_ct" in meta
    assert all("spec_verify_ct" not in event["meta_info"] for event in events[:-1])
    assert all(event["meta_info"]["finish_reason"] is None for event in events[:-1])


def test_incremental_streams_are_disjoint_pieces(tokenizer: Tokenizer) -> None:
    settings = with_settings(incremental_streaming_output=True)
    body = {"input_ids": PROMPT, "sampling_params": GREEDY, "stream": True}
    with serve(lambda: ScriptedRunner(drafts=3), tokenizer, settings) as live:
        events = live.events("/generate", body)
    ids = [token for event in events for token in event["output_ids"]]
    assert ids == script(PROMPT, 24)
    assert "".join(event["text"] for event in events) == tokenizer.decode(ids)
    assert [e["meta_info"]["completion_tokens"] for e in events][-1] == 24


def test_a_stream_of_many_prompts_says_which_one_an_event_belongs_to(live: Live) -> None:
    prompts = [[40, 50], [41, 51]]
    body = {"input_ids": prompts, "sampling_params": GREEDY, "stream": True}
    events = live.events("/generate", body)
    for index, prompt in enumerate(prompts):
        mine = [event for event in events if event["index"] == index]
        assert mine[-1]["output_ids"] == script(prompt, 24)


def test_the_same_request_gives_the_same_answer_alone_and_in_a_crowd(live: Live) -> None:
    alone = live.generate(input_ids=PROMPT, sampling_params=GREEDY)
    found: list[list[int]] = []

    def ask() -> None:
        found.append(live.generate(input_ids=PROMPT, sampling_params=GREEDY)["output_ids"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone["output_ids"]] * 8


def test_input_and_output_beyond_the_limit_are_refused_and_never_cut(live: Live) -> None:
    answer = live.client.post(
        "/generate", json={"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 509}}
    )
    assert answer.status_code == 400
    assert "exceeds" in answer.json()["error"]["message"]
    assert live.generate(input_ids=PROMPT, sampling_params={**GREEDY, "max_new_tokens": 508})[
        "meta_info"
    ]["finish_reason"] == {"type": "length", "length": 508}


def test_a_request_that_the_core_gives_up_is_an_error_and_the_next_one_works(
    tokenizer: Tokenizer,
) -> None:
    broken = Finish("abort", message="The draft logits of step 3 are not finite.")

    def fault(seq: Any) -> Finish | None:
        return broken if seq.request_id == "bad" and len(seq.output_ids) >= 3 else None

    body = {"input_ids": PROMPT, "sampling_params": GREEDY, "rid": "bad"}
    with serve(lambda: ScriptedRunner(fault=fault), tokenizer) as live:
        answer = live.client.post("/generate", json=body)
        assert answer.status_code == 500
        assert answer.json()["error"]["message"] == broken.message
        events = live.events("/generate", {**body, "stream": True})
        assert len(events) == 4
        assert events[-1]["error"]["message"] == broken.message
        chat = live.events("/v1/completions", {"prompt": PROMPT, "rid": "bad", "stream": True})
        assert chat[-1]["error"]["code"] == 500
        assert live.generate(input_ids=PROMPT, sampling_params=GREEDY)["output_ids"]


def test_log_probabilities_come_with_ids_and_with_text_when_asked(
    live: Live, tokenizer: Tokenizer
) -> None:
    body = {
        "input_ids": PROMPT,
        "sampling_params": GREEDY,
        "return_logprob": True,
        "top_logprobs_num": 1,
    }
    answer = live.generate(**body)
    meta, ids = answer["meta_info"], answer["output_ids"]
    assert [entry[1] for entry in meta["output_token_logprobs"]] == ids
    assert [entry[2] for entry in meta["output_token_logprobs"]] == [None] * 24
    assert [top[0][1] for top in meta["output_top_logprobs"]] == ids
    assert meta["output_token_logprobs_length"] == 24
    texts = live.generate(**body, return_text_in_logprobs=True)["meta_info"]
    shown = [entry[2] for entry in texts["output_token_logprobs"]]
    assert shown == [tokenizer.decode([token]) for token in ids]
    last = live.events("/generate", {**body, "stream": True})[-1]
    assert len(last["meta_info"]["output_token_logprobs"]) == 24
    plain = live.generate(input_ids=PROMPT, sampling_params=GREEDY)
    assert "output_token_logprobs" not in plain["meta_info"]


def test_openai_style_log_probabilities_are_of_the_same_tokens(live: Live) -> None:
    common = {"temperature": 0, "max_tokens": 5, "ignore_eos": True}
    body = {**common, "prompt": PROMPT, "logprobs": 1}
    (choice,) = live.client.post("/v1/completions", json=body).json()["choices"]
    assert len(choice["logprobs"]["tokens"]) == len(choice["logprobs"]["token_logprobs"]) == 5
    chat = {**common, "input_ids": PROMPT, "logprobs": True, "top_logprobs": 1}
    (choice,) = live.client.post("/v1/chat/completions", json=chat).json()["choices"]
    entries = choice["logprobs"]["content"]
    assert len(entries) == 5
    assert all(len(entry["top_logprobs"]) == 1 for entry in entries)


# -- abort, disconnect, flush ---------------------------------------------------------------


def start_stream(live: Live, rid: str, tokens: int = 400) -> tuple[httpx.Response, Any]:
    body = {
        "input_ids": PROMPT,
        "sampling_params": {**GREEDY, "max_new_tokens": tokens},
        "stream": True,
        "rid": rid,
    }
    request = live.client.build_request("POST", "/generate", json=body)
    answer = live.client.send(request, stream=True)
    lines = answer.iter_lines()
    assert next(lines).startswith("data: ")
    return answer, lines


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


# -- the engine breaks ----------------------------------------------------------------------


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


# -- OpenAI-style routes --------------------------------------------------------------------


def test_a_completion_has_usage_and_ids(live: Live, tokenizer: Tokenizer) -> None:
    body = {
        "model": "tiny",
        "prompt": PROMPT,
        "max_tokens": 12,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    answer = live.client.post("/v1/completions", json=body).json()
    (choice,) = answer["choices"]
    assert choice["token_ids"] == script(PROMPT, 12)
    assert choice["prompt_token_ids"] == PROMPT
    assert choice["text"] == tokenizer.decode(choice["token_ids"])
    assert (choice["finish_reason"], choice["matched_stop"]) == ("length", None)
    assert answer["usage"] == {
        "prompt_tokens": 4,
        "total_tokens": 16,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 0},
        "reasoning_tokens": 0,
    }


@pytest.mark.parametrize(
    "prompt", ["The river", ["The river", "was wide"], PROMPT, [PROMPT, [50, 51]]]
)
def test_a_completion_takes_text_ids_and_lists_of_both(live: Live, prompt: Any) -> None:
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 3}
    answer = live.client.post("/v1/completions", json=body)
    assert answer.status_code == 200
    many = isinstance(prompt, list) and not isinstance(prompt[0], int)
    assert [c["index"] for c in answer.json()["choices"]] == ([0, 1] if many else [0])


def test_a_completion_stream_ends_with_usage_when_asked(live: Live) -> None:
    body = {
        "prompt": PROMPT,
        "max_tokens": 12,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    *chunks, last = live.events("/v1/completions", body)
    assert [t for chunk in chunks for t in chunk["choices"][0]["token_ids"]] == script(PROMPT, 12)
    assert chunks[0]["choices"][0]["prompt_token_ids"] == PROMPT
    assert all("prompt_token_ids" not in chunk["choices"][0] for chunk in chunks[1:])
    assert all(chunk["usage"] is None for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 12
    without = live.events("/v1/completions", {**body, "stream_options": None})
    assert all(event["choices"] for event in without)


def test_continuous_usage_counts_up_to_the_total(live: Live) -> None:
    body = {
        "prompt": PROMPT,
        "max_tokens": 12,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    counts = [e["usage"]["completion_tokens"] for e in live.events("/v1/completions", body)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 12)


def test_without_the_cache_report_usage_has_no_cached_tokens(tokenizer: Tokenizer) -> None:
    body = {"prompt": PROMPT, "stream": True, "stream_options": {"include_usage": True}}
    with serve(ScriptedRunner, tokenizer, with_settings()) as live:
        last = live.events("/v1/completions", body)[-1]
        assert "prompt_tokens_details" not in last["usage"]
        answer = live.client.post("/v1/completions", json={"prompt": PROMPT}).json()
        assert answer["usage"]["prompt_tokens_details"] is None


def test_sglext_carries_the_speculation_when_asked(live: Live) -> None:
    body = {
        "prompt": PROMPT,
        "max_tokens": 24,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_spec_tokens_details": True,
    }
    last = live.events("/v1/completions", body)[-1]
    assert last["choices"] == []
    assert last["sglext"]["spec_tokens_details"]["spec_verify_ct"] > 0


CHAT = [{"role": "user", "content": "Where is the boat?"}]


def test_a_chat_stream_is_role_then_text_then_reason_then_usage(
    live: Live, tokenizer: Tokenizer
) -> None:
    body = {
        "messages": CHAT,
        "max_completion_tokens": 10,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    events = live.events("/v1/chat/completions", body)
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert deltas[0] == {"reasoning_content": None, "role": "assistant", "content": ""}
    assert deltas[-1] == {"reasoning_content": None}
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert all(event["choices"][0]["finish_reason"] is None for event in events[:-2])
    assert all("usage" not in event for event in events[:-1])
    assert events[-1]["usage"]["completion_tokens"] == 10
    prompt = tokenizer.encode(tokenizer.render_chat(CHAT), add_special_tokens=False)
    text = "".join(delta.get("content", "") for delta in deltas)
    assert text == tokenizer.decode(script(prompt, 10))


def test_a_chat_answer_may_carry_its_meta_info(live: Live) -> None:
    body = {"messages": CHAT, "max_tokens": 10, "temperature": 0, "return_meta_info": True}
    (choice,) = live.client.post("/v1/chat/completions", json=body).json()["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["meta_info"]["prefill_tokens"] == 1


def test_a_chat_without_a_limit_may_fill_the_context(live: Live) -> None:
    body = {"input_ids": PROMPT, "temperature": 0, "ignore_eos": True}
    answer = live.client.post("/v1/chat/completions", json=body).json()
    assert answer["usage"]["total_tokens"] == 512


def test_the_end_token_ends_the_answer_and_is_named(tokenizer: Tokenizer) -> None:
    runner = ScriptedRunner(model=lambda tokens, vocab: EOS if len(tokens) > 7 else 50)
    with serve(lambda: runner, tokenizer) as live:
        answer = live.generate(input_ids=PROMPT, sampling_params={"temperature": 0})
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": EOS}
        assert answer["output_ids"][-1] == EOS
        assert "<|" not in answer["text"]
        body = {"messages": CHAT, "temperature": 0, "stream": True}
        last = live.events("/v1/chat/completions", body)[-1]["choices"][0]
        assert (last["finish_reason"], last["matched_stop"]) == ("stop", EOS)


# -- tokens ---------------------------------------------------------------------------------


def test_tokenize_and_detokenize_are_each_other_s_inverse(live: Live) -> None:
    text = "näïve 日本語 🙂"
    tokens = live.client.post("/tokenize", json={"prompt": text}).json()
    assert tokens["count"] == len(tokens["tokens"])
    assert tokens["max_model_len"] == 512
    back = live.client.post("/detokenize", json={"tokens": tokens["tokens"]}).json()
    assert back == {"text": text}


def test_tokenize_counts_what_a_chat_will_cost(live: Live) -> None:
    counted = live.client.post("/tokenize", json={"messages": CHAT}).json()["count"]
    body = {"messages": CHAT, "max_tokens": 1, "temperature": 0}
    usage = live.client.post("/v1/chat/completions", json=body).json()["usage"]
    assert usage["prompt_tokens"] == counted


def test_detokenize_refuses_unknown_ids(live: Live) -> None:
    answer = live.client.post("/detokenize", json={"tokens": [5, 384]})
    assert answer.status_code == 400
    assert "384" in answer.json()["error"]["message"]


# -- metrics --------------------------------------------------------------------------------


def scrape(live: Live) -> dict[str, float]:
    from prometheus_client.parser import text_string_to_metric_families

    text = live.client.get("/metrics").text
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


def test_metrics_count_what_happened(live: Live) -> None:
    before = scrape(live)
    meta = live.generate(input_ids=PROMPT, sampling_params=GREEDY)["meta_info"]
    after = scrape(live)
    grown = {name: after[name] - before[name] for name in after if name in before}
    assert grown["sglang:prompt_tokens_total"] == 4
    assert grown["sglang:generation_tokens_total"] == 24
    assert grown["sglang:num_requests_total"] == 1
    assert grown["sglang:spec_verify_calls_total"] == meta["spec_verify_ct"]
    assert grown["specdec:proposed_drafts_total"] == meta["spec_num_proposed_drafts"]
    assert grown["specdec:correct_drafts_total"] == meta["spec_num_correct_drafts"]
    assert grown["sglang:time_to_first_token_seconds_count"] == 1
    assert grown["sglang:inter_token_latency_seconds_count"] == 23
    assert grown["sglang:e2e_request_latency_seconds_count"] == 1
    assert after["sglang:max_total_num_tokens"] == 1024
    assert after["sglang:num_running_reqs"] == 0
    assert after["sglang:token_usage"] == 0
    assert after["sglang:spec_accept_length"] > 1
    assert after["sglang:cached_tokens_total"] == 0


def test_health_probes_stay_out_of_the_histograms(live: Live) -> None:
    before = scrape(live)
    live.client.get("/health_generate")
    after = scrape(live)
    name = "sglang:time_to_first_token_seconds_count"
    assert after[name] == before[name]


def test_metrics_are_off_by_default(tokenizer: Tokenizer) -> None:
    with serve(ScriptedRunner, tokenizer) as live:
        assert live.client.get("/metrics").status_code == 404
