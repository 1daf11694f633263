"""`/generate` over real sockets; the model is a script, so every answer is known."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from scripted_runner import ScriptedRunner
from server_live import Live, serve, with_settings
from server_script import GREEDY, PROMPT, script
from specdec.request import Finish
from specdec.tokenizer import Tokenizer


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
