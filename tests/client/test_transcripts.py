"""Recorded streams of four real servers, against truths read by plain code.

The plain code below knows these recordings only: each chunk holds whole events of one line.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from qualify.client.http import send
from qualify.client.reply import Reply
from qualify.client.stream import fold_openai
from qualify.client.timing import timing_of
from tests.client.streams import CASES, post, run, transcript, transcript_raw
from tests.scripted_engine import ScriptedServer, stream_play

SERVERS = ["llama_cpp_python", "llamacpp_server", "llamacpp_server_ngram", "vllm_ngram"]
STREAMS = [
    *("completions_stream", "completions_stream_usage", "completions_stream_usage_lp"),
    *("completions_stream_repeat", "chat_stream_usage", "chat_stream_usage_lp"),
]
ALL = [(s, c) for s in SERVERS for c in STREAMS]


def plain(kept: dict[str, Any]) -> dict[str, Any]:
    """Text, times of visible tokens, counts and end of a recording, the plain way."""
    truth: dict[str, Any] = {"text": "", "times": [], "usage": None, "finish": None, "ids": []}
    for t, chunk in kept["chunks"]:
        for block in chunk.split("\n\n"):
            if not block.startswith("data: {"):
                continue
            event = json.loads(block[6:])
            truth["usage"] = event.get("usage") or truth["usage"]
            for choice in event["choices"]:
                piece = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
                logprobs = choice.get("logprobs") or {}
                silent = not piece and bool(logprobs.get("content") or logprobs.get("tokens"))
                if piece or silent:
                    truth["times"].append(t)
                    truth["ids"] += choice.get("token_ids") or []
                truth["text"] += piece
                truth["finish"] = choice["finish_reason"] or truth["finish"]
    return truth


@pytest.mark.parametrize(("server", "case"), ALL)
def test_a_recorded_stream_reads_as_plain_code_reads_it(server: str, case: str) -> None:
    kept = transcript(server, case)
    truth = plain(kept)
    reply = fold_openai(transcript_raw(kept))
    assert reply.text == truth["text"]
    assert [e.t_s for e in reply.events] == pytest.approx(truth["times"])
    assert reply.finish_reason == truth["finish"]
    if truth["usage"] is None:
        assert reply.failure is not None
        assert reply.failure.cause == ("no-usage" if truth["times"] else "no-tokens")
        return
    assert reply.failure is None
    assert reply.usage.prompt_tokens == truth["usage"]["prompt_tokens"]
    assert reply.usage.completion_tokens == truth["usage"]["completion_tokens"]
    details = truth["usage"].get("prompt_tokens_details") or {}
    assert reply.usage.cached_tokens == details.get("cached_tokens")
    if truth["ids"]:
        assert list(reply.ids or ()) == truth["ids"]
    timing, _ = timing_of(reply)
    assert timing.ttft_s == pytest.approx(truth["times"][0])
    if len(truth["times"]) == truth["usage"]["completion_tokens"]:
        span = truth["times"][-1] - truth["times"][0]
        assert timing.tpot_ms == pytest.approx(1000 * span / (len(truth["times"]) - 1))


def test_the_recorded_servers_with_counts_are_the_ones_that_succeed() -> None:
    ok = {
        server: sum(
            fold_openai(transcript_raw(transcript(server, case))).failure is None
            for case in STREAMS
        )
        for server in SERVERS
    }
    # llama-cpp-python never reports usage; vLLM does when asked, llama.cpp always.
    assert ok == {
        "llama_cpp_python": 0,
        "llamacpp_server": 6,
        "llamacpp_server_ngram": 6,
        "vllm_ngram": 5,
    }


def test_tokens_a_step_are_known_where_vllm_streams_ids() -> None:
    reply = fold_openai(transcript_raw(transcript("vllm_ngram", "completions_stream_usage_lp")))
    assert sum(e.tokens or 0 for e in reply.events) == reply.usage.completion_tokens == 12
    assert max(e.tokens or 0 for e in reply.events) > 1


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("case", ["bad_param", "not_found"])
def test_recorded_errors_are_quoted_with_their_status(server: str, case: str) -> None:
    kept = transcript(server, case)
    reply = fold_openai(transcript_raw(kept))
    assert reply.failure is not None
    assert reply.failure.cause == "http-status"
    assert reply.failure.message.startswith(f"HTTP {kept['status']}")


@pytest.mark.parametrize("case", ["completions_plain", "completions_token_ids"])
def test_recorded_documents_have_counts_and_no_times(case: str) -> None:
    kept = transcript("vllm_ngram", case)
    reply = fold_openai(transcript_raw(kept))
    body = json.loads(kept["chunks"][0][1])
    assert reply.failure is None
    assert reply.text == body["choices"][0]["text"]
    assert reply.usage.completion_tokens == body["usage"]["completion_tokens"]
    assert timing_of(reply)[0].ttft_s is None


def test_every_recording_reads_the_same_over_a_socket_as_from_its_file() -> None:
    files = sorted((CASES / "transcripts").glob("*/*.json"))
    kept = [json.loads(f.read_text(encoding="utf-8")) for f in files]

    async def main() -> list[Reply]:
        def answer(seen: Any) -> Any:
            one = kept[int(seen.path.strip("/"))]
            fields = {
                name.lower(): value
                for name, value in one["headers"]
                if name.lower() in ("content-type", "server")
            }
            steps = [(0.2 * k, data.encode()) for k, (_, data) in enumerate(one["chunks"])]
            return stream_play(steps, status=one["status"], headers=fields)

        async with ScriptedServer(answer) as server:
            return [
                fold_openai(await send(post(f"{server.url}/{k}", {}))) for k in range(len(kept))
            ]

    assert len(kept) >= 48
    for one, got in zip(kept, run(main()), strict=True):
        expected = fold_openai(transcript_raw(one))
        assert (got.failure, got.text, got.usage) == (
            expected.failure,
            expected.text,
            expected.usage,
        )
