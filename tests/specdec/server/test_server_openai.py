"""The OpenAI-style routes over real sockets; the model is a script."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_runner import EOS, ScriptedRunner
from server_live import Live, serve, with_settings
from server_script import CHAT, PROMPT, script
from specdec.tokenizer import Tokenizer


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
