"""Completions and chat streams: what is read out of them, and which are no success."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify.client.reply import Reply
from qualify.client.stream import fold_openai
from qualify.client.timing import timing_of
from tests.client.streams import delta, events, raw, sse, text, usage

DONE = (99.0, "[DONE]")


def cause(reply: Reply) -> str | None:
    return reply.failure.cause if reply.failure else None


def test_a_role_event_is_no_token() -> None:
    reply = fold_openai(
        events(
            (4, delta(role="assistant", content="")),
            (4, delta(role="assistant", content=None, reasoning_content=None)),
            (50, delta(content="a")),
            (60, delta("stop", content="")),
            (61, usage(3, 1)),
            DONE,
        )
    )
    timing, _ = timing_of(reply)
    assert cause(reply) is None
    assert timing.ttft_s == pytest.approx(0.050)
    assert timing.t_last_s == pytest.approx(0.050)


def test_blanks_at_the_edges_of_pieces_are_kept() -> None:
    reply = fold_openai(events((1, text("a ")), (2, text(" b")), (3, text(" ", "stop")), DONE))
    assert reply.text == "a  b "


def test_reasoning_that_a_server_spells_both_ways_at_once_counts_once() -> None:
    reply = fold_openai(events((1, delta(reasoning="x", reasoning_content="x")), DONE))
    assert reply.reasoning == "x"


def test_tool_calls_are_tokens_and_are_put_together() -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, "id": f"c{index}", "function": function}])

    reply = fold_openai(
        events(
            (10, call(0, name="add", arguments="")),
            (20, call(0, arguments='{"a":')),
            (30, call(0, arguments="1}")),
            (40, call(1, name="sub", arguments="{}")),
            (41, delta("tool_calls")),
            (42, usage(5, 4)),
            DONE,
        )
    )
    timing, _ = timing_of(reply)
    assert cause(reply) is None
    assert reply.extras["tool_calls"] == [
        {"id": "c0", "name": "add", "arguments": '{"a":1}'},
        {"id": "c1", "name": "sub", "arguments": "{}"},
    ]
    assert timing.ttft_s == pytest.approx(0.010)
    assert timing.tpot_ms == pytest.approx(10.0)


def test_token_ids_give_the_tokens_of_each_event_and_the_ids_of_the_reply() -> None:
    def said(piece: str, ids: list[int] | None, reason: str | None = None) -> dict[str, Any]:
        event = text(piece, reason)
        event["choices"][0]["token_ids"] = ids
        return event

    reply = fold_openai(
        events(
            (10, said("a", [1])),
            (20, said("", [7])),  # half a character: a token all the same
            (30, said("\u4e2db", [8, 9])),
            (31, said("", [], "length")),
            (32, usage(3, 4)),
            DONE,
        )
    )
    timing, _ = timing_of(reply)
    assert reply.ids == (1, 7, 8, 9)
    assert [e.tokens for e in reply.events] == [1, 1, 2]
    assert timing.tpot_ms == pytest.approx(20 / 3)


def test_ids_that_are_missing_in_the_middle_leave_the_reply_without_ids() -> None:
    first = text("a")
    first["choices"][0]["token_ids"] = [1]
    assert fold_openai(events((1, first), (2, text("b", "length")), DONE)).ids is None


def test_a_running_count_after_an_unknown_part_says_only_its_own_growth() -> None:
    def counted(piece: str, total: int, reason: str | None = None) -> dict[str, Any]:
        return text(piece, reason, usage={"prompt_tokens": 1, "completion_tokens": total})

    reply = fold_openai(
        events((1, text("a")), (2, counted("b", 5)), (3, counted("c", 7, "length")), DONE)
    )
    assert [e.tokens for e in reply.events] == [None, None, 2]
    timing, notes = timing_of(reply)
    assert timing.n_first is None
    assert timing.tpot_ms is None
    assert any("does not say how many" in note for note in notes)


def test_a_closing_usage_is_not_taken_for_tokens_of_its_own_event() -> None:
    first = text("a")
    first["choices"][0]["token_ids"] = [1]
    reply = fold_openai(events((10, first), (11, text("", "stop")), (500, usage(1, 2)), DONE))
    timing, _ = timing_of(reply)
    assert timing.t_last_s == pytest.approx(0.010)
    assert len(reply.events) == 1


def test_cached_and_reasoning_counts_are_read_wherever_servers_put_them() -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 448},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    reply = fold_openai(events((1, text("a", "stop")), (2, usage(512, 1, **details)), DONE))
    assert (reply.usage.cached_tokens, reply.usage.reasoning_tokens) == (448, 0)
    flat = usage(512, 1, prompt_tokens_details=None, reasoning_tokens=0)
    reply = fold_openai(events((1, text("a", "stop")), (2, flat), DONE))
    assert (reply.usage.cached_tokens, reply.usage.reasoning_tokens) == (None, 0)


@pytest.mark.parametrize("value", [True, -1, "2", 1.5, None, [2], {"n": 2}])
def test_a_count_that_is_no_count_is_unknown(value: Any) -> None:
    said = {"choices": [], "usage": {"prompt_tokens": value, "completion_tokens": value}}
    reply = fold_openai(events((1, text("a", "stop")), (2, said), DONE))
    assert reply.usage.prompt_tokens is None
    assert cause(reply) == "no-usage"


def test_a_stream_without_a_count_is_no_success() -> None:
    reply = fold_openai(events((1, text("a")), (2, text("b", "stop")), DONE))
    assert (cause(reply), reply.text) == ("no-usage", "ab")


def test_a_stream_without_done_is_complete_when_it_said_why_it_stopped() -> None:
    assert cause(fold_openai(events((1, text("a", "stop")), (2, usage(1, 1))))) is None


def test_a_stream_that_stops_without_saying_why_is_truncated() -> None:
    running = {"prompt_tokens": 1, "completion_tokens": 1}
    assert cause(fold_openai(events((1, text("a", usage=running))))) == "truncated-stream"
    assert cause(fold_openai(events((1, text("a")), DONE))) == "truncated-stream"
    assert cause(fold_openai(events((1, text("a", usage=running)), DONE))) == "truncated-stream"


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("cut", "truncated-stream"),
        ("reset", "reset"),
        ("timeout", "timeout"),
        ("cancelled", "cancelled"),
    ],
)
def test_a_connection_that_ends_in_the_middle_fails_with_its_cause(end: str, expected: str) -> None:
    chunks = [(1.0, sse(text("a"))), (2.0, sse(text("b"))), (3.0, b'data: {"choi')]
    reply = fold_openai(raw(chunks, end=end, detail="what was seen"))
    assert (cause(reply), reply.text) == (expected, "ab")
    assert reply.failure is not None
    assert reply.failure.message == "what was seen"


def test_a_connection_that_ends_badly_after_everything_had_come_lost_nothing() -> None:
    chunks = [(1.0, sse(text("a", "stop"))), (2.0, sse(usage(1, 1))), (3.0, sse("[DONE]"))]
    reply = fold_openai(raw(chunks, end="cut"))
    assert cause(reply) is None
    assert any("ended badly" in note for note in reply.notes)


def test_a_complete_body_that_ends_inside_an_event_is_truncated() -> None:
    reply = fold_openai(raw([(1, sse(text("a"))), (2, b'data: {"choices":[{"te')]))
    assert cause(reply) == "truncated-stream"


@pytest.mark.parametrize("body", [b"", b": ping\n\n", b"data: [DONE]\n\n", b"<html>busy</html>"])
def test_a_200_without_tokens_is_a_failure(body: bytes) -> None:
    reply = fold_openai(raw([(1, body)] if body else []))
    assert cause(reply) == "no-tokens"


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_an_http_error_is_quoted_up_to_200_bytes(status: int) -> None:
    reply = fold_openai(raw([(1, b'{"error":"' + b"x" * 500 + b'"}')], status=status))
    assert reply.failure is not None
    assert reply.failure.cause == "http-status"
    assert f"HTTP {status}" in reply.failure.message
    assert 150 < reply.failure.message.count("x") <= 200


def test_a_redirect_names_where_it_points_and_is_not_followed() -> None:
    reply = fold_openai(raw([], status=307, headers=[("Location", "http://127.0.0.1:1/v2")]))
    assert reply.failure is not None
    assert "http://127.0.0.1:1/v2" in reply.failure.message
    assert "not followed" in reply.failure.message


def test_a_compressed_body_is_refused_by_name() -> None:
    reply = fold_openai(raw([(1, b"\x1f\x8b...")], headers=[("content-encoding", "gzip")]))
    assert reply.failure is not None
    assert (reply.failure.cause, "gzip" in reply.failure.message) == ("bad-http", True)


def test_an_answer_that_is_not_streamed_has_text_and_counts_but_no_times_to_report() -> None:
    body = {
        "choices": [{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    reply = fold_openai(raw([(900, json.dumps(body, indent=1).encode())]))
    timing, _ = timing_of(reply)
    assert cause(reply) is None
    assert (reply.text, reply.usage.completion_tokens) == ("ab", 2)
    assert (timing.ttft_s, timing.tpot_ms, timing.tpot_common_ms) == (None, None, None)
    assert any("not streamed" in note for note in reply.notes)


def test_an_error_document_with_status_200_is_a_stream_error() -> None:
    reply = fold_openai(raw([(5, b'{"error":{"message":"no such model"}}')]))
    assert reply.failure is not None
    assert (reply.failure.cause, reply.failure.message) == ("stream-error", "no such model")


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_aborted_request_is_no_success(reason: str) -> None:
    reply = fold_openai(events((1, text("a")), (2, text("", reason)), (3, usage(1, 1)), DONE))
    assert cause(reply) == "stream-error"


def test_a_null_error_is_no_error() -> None:
    reply = fold_openai(events((1, text("a", "stop", error=None)), (2, usage(1, 1)), DONE))
    assert cause(reply) is None


def test_only_choice_0_is_read_and_a_second_one_is_noted() -> None:
    other = {"choices": [{"index": 1, "text": "no", "finish_reason": None}]}
    reply = fold_openai(events((1, text("a")), (2, other), (3, text("b", "stop")), DONE))
    assert reply.text == "ab"
    assert any("choice" in note for note in reply.notes)


def test_surrogate_halves_escaped_in_two_events_become_one_character() -> None:
    halves = [b'data: {"choices":[{"index":0,"text":"\\ud83d"}]}\n\n']
    halves += [b'data: {"choices":[{"index":0,"text":"\\ude42","finish_reason":"stop"}]}\n\n']
    reply = fold_openai(raw([(1, halves[0]), (2, halves[1]), (3, sse(usage(1, 1)))]))
    assert reply.text == "\U0001f642"
    reply.text.encode("utf-8")


def test_hidden_tokens_are_seen_without_the_servers_help() -> None:
    parts = [(5000.0, delta(content="The answer")), (5020.0, delta("stop", content=" 42"))]
    reply = fold_openai(events(*parts, (5021, usage(30, 900)), DONE))
    assert reply.timing_undefined is not None
    running = {"usage": {"prompt_tokens": 3, "completion_tokens": 897}}
    parts[0] = (5000.0, {**delta(content="The answer"), **running})
    reply = fold_openai(events(*parts, (5021, usage(30, 900)), DONE))
    assert reply.timing_undefined is not None


def test_reasoning_inside_the_text_is_not_hidden() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 2}}
    parts = [(1.0, delta(content="<think>so")), (2.0, delta("stop", content="</think>a"))]
    reply = fold_openai(events(*parts, (3, usage(1, 2, **details)), DONE))
    assert reply.timing_undefined is None


def test_events_of_many_tokens_with_their_text_are_plausible() -> None:
    parts = [(float(k), text("word " * 50)) for k in range(4)]
    reply = fold_openai(events(*parts, (5, text("", "length")), (6, usage(1, 200)), DONE))
    assert reply.timing_undefined is None


_WHOLE = b"".join(
    [
        *(
            sse(delta(role="assistant", content="")),
            b": ping\r\n\r\n",
            sse(delta(reasoning="R\u00e9")),
        ),
        *(sse(delta(content="\u4e2d\u2028")), sse(delta("stop", content="\U0001f642"))),
        *(sse(usage(9, 3)).replace(b"\n", b"\r\n"), sse("[DONE]")),
    ]
)


@given(st.lists(st.integers(0, len(_WHOLE)), max_size=20))
@settings(max_examples=200, deadline=None)
def test_any_cut_of_a_chat_stream_gives_the_same_reply(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(_WHOLE)]
    reads = [(1.0, _WHOLE[a:b]) for a, b in pairwise(edges)]
    assert fold_openai(raw(reads)) == fold_openai(raw([(1.0, _WHOLE)]))
