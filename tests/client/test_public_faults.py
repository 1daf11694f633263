"""Faults that users of such tools reported in public: the small input, and the right answer.

Each name begins with the case in tests/cases/public-faults.jsonl that it holds.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from qualify.client.http import send
from qualify.client.reply import Reply
from qualify.client.stream import fold_openai, fold_sglang
from qualify.client.timing import timing_of
from qualify.records.schema import Timing
from tests.client.streams import (
    delta,
    events,
    fault,
    fault_chunks,
    post,
    public_faults,
    raw,
    run,
    stream_faults,
    text,
    usage,
)
from tests.scripted_engine import ScriptedServer, stream_play


def read(name: str) -> tuple[Reply, Timing]:
    reply = fold_openai(fault(name))
    return reply, timing_of(reply)[0]


def ms(value: float | None) -> float:
    assert value is not None
    return 1000.0 * value


def test_f001_several_tokens_an_event_do_not_stretch_the_time_per_token() -> None:
    reply, timing = read("F001")
    assert reply.failure is None
    assert reply.usage.completion_tokens == 21
    assert ms(timing.ttft_s) == pytest.approx(500)
    assert timing.tpot_ms == pytest.approx(10.0)
    assert timing.max_gap_ms == pytest.approx(40.0)
    assert [n for _, n in timing.events] == [1, 4, 4, 4, 4, 4]


def test_f002_a_peak_over_counted_tokens_is_never_below_the_mean() -> None:
    _, timing = read("F002")
    tokens = [(t, n or 0) for t, n in timing.events]
    assert sum(n for _, n in tokens) == 80
    best = max(sum(n for t, n in tokens if start <= t < start + 1.0) for start, _ in tokens)
    assert timing.t_last_s is not None
    assert best >= 80 / timing.t_last_s


def test_f004_the_wait_for_the_first_token_is_no_gap() -> None:
    _, timing = read("F004")
    times = [t for t, _ in timing.events]
    gaps = [round(1000 * (b - a)) for a, b in pairwise(times)]
    assert gaps == [10, 10]
    assert timing.tpot_ms == pytest.approx(10.0)
    assert timing.max_gap_ms == pytest.approx(10.0)


def test_f005_both_spellings_of_reasoning_carry_tokens_and_stay_apart_from_the_answer() -> None:
    reply, timing = read("F005")
    assert (reply.reasoning, reply.text) == ("Let me see", "42")
    assert reply.usage.completion_tokens == 4
    assert ms(timing.ttft_s) == pytest.approx(120)
    assert ms(timing.first_visible_s) == pytest.approx(900)
    assert timing.tpot_ms == pytest.approx(260)


def test_f007_tokens_that_were_not_streamed_leave_ttft_and_tpot_undefined() -> None:
    reply, timing = read("F007")
    assert reply.failure is None
    assert (timing.ttft_s, timing.tpot_ms, timing.tpot_common_ms) == (None, None, None)
    assert any(n.startswith("reasoning not streamed: TTFT and TPOT undefined") for n in reply.notes)
    assert ms(timing.t_end_s) == pytest.approx(5023)
    assert reply.usage.completion_tokens == 900


@pytest.mark.parametrize("choices", [[], None, "missing"])
def test_f008_usage_may_come_without_choices(choices: Any) -> None:
    chunks = fault_chunks("F008")
    last = {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    if choices != "missing":
        last["choices"] = choices
    chunks[2] = (61, b"data: " + json.dumps(last).encode() + b"\n\n")
    reply = fold_openai(raw(chunks))
    assert reply.failure is None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (7, 2)


def test_f010_usage_may_come_with_choices() -> None:
    reply, _ = read("F010")
    assert (reply.failure, reply.text, reply.usage.completion_tokens) == (None, "xy", 2)


def test_f011_running_usage_is_a_total_and_gives_the_tokens_of_each_event() -> None:
    reply, timing = read("F011")
    assert reply.failure is None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (16, 3)
    assert [n for _, n in timing.events] == [1, 1, 1]


@pytest.mark.parametrize("cut", range(1, 12))
def test_f013_a_character_cut_at_any_byte_comes_back_whole(cut: int) -> None:
    whole = b"".join(data for _, data in fault_chunks("F013"))
    at = whole.index("\u4e2d".encode()) - 2 + cut
    for reply in (fold_openai(raw([(1, whole[:at]), (2, whole[at:])])), read("F013")[0]):
        assert (reply.failure, reply.text) == (None, "\u4e2d\U0001f642")


def test_f014_unicode_line_separators_are_text() -> None:
    reply, _ = read("F014")
    assert (reply.failure, reply.text) == (None, "a\u2028b\u2029c\u0085d")


def test_f016_crlf_and_bare_cr_end_lines_also_when_cut() -> None:
    reply, _ = read("F016")
    assert (reply.failure, reply.text, reply.usage.completion_tokens) == (None, "AB", 2)


def test_f017_data_lines_are_joined_and_other_fields_are_no_broken_json() -> None:
    reply, _ = read("F017")
    assert (reply.failure, reply.text, len(reply.events)) == (None, "A", 1)


_LATE_ERRORS = [
    b'data: {"error":"engine stopped"}\n\n',
    b'data: {"error":{"message":"engine stopped","code":500}}\n\n',
    b"event: error\ndata: engine stopped\n\n",
    b'event: error\ndata: {"message":"engine stopped"}\n\n',
    b'error: {"message":"engine stopped"}\n\n',
    b'data: {"object":"error","message":"engine stopped","code":500}\n\n',
]


@pytest.mark.parametrize("error", _LATE_ERRORS)
def test_f019_an_error_after_some_tokens_fails_the_request_and_keeps_its_text(
    error: bytes,
) -> None:
    chunks = fault_chunks("F019")
    chunks[2] = (120, error)
    reply = fold_openai(raw(chunks))
    assert reply.failure is not None
    assert reply.failure.cause == "stream-error"
    assert "engine stopped" in reply.failure.message
    assert reply.text == "ab"


def test_f020_an_unreadable_event_fails_the_request_and_is_quoted() -> None:
    reply, _ = read("F020")
    assert reply.failure is not None
    assert reply.failure.cause == "malformed-event"
    assert '"text":"b"' in reply.failure.message


def test_f020_a_long_unreadable_event_is_quoted_up_to_200_bytes() -> None:
    reply = fold_openai(raw([(1, b"data: {" + b"x" * 5000 + b"\n\n")]))
    assert reply.failure is not None
    assert "x" * 199 in reply.failure.message
    assert "x" * 200 not in reply.failure.message


def test_f022_decoding_ends_at_the_last_token_not_at_usage_or_done() -> None:
    _, timing = read("F022")
    assert timing.tpot_ms == pytest.approx(10.0)
    assert ms(timing.t_last_s) == pytest.approx(120)
    assert ms(timing.t_end_s) == pytest.approx(430)


def test_f022_events_that_share_a_read_share_its_time() -> None:
    first, second, *rest = fault_chunks("F022")
    reply = fold_openai(raw([(110, first[1] + second[1]), *rest]))
    assert [e.t_s for e in reply.events] == pytest.approx([0.110, 0.110, 0.120])


def test_f023_a_stall_shows_as_a_gap_beside_the_mean() -> None:
    _, timing = read("F023")
    assert [ms(t) for t, _ in timing.events] == pytest.approx([100, 110, 120, 620, 630])
    assert timing.tpot_ms == pytest.approx(132.5)
    assert timing.max_gap_ms == pytest.approx(500)


def test_f029_the_count_is_the_servers() -> None:
    reply, _ = read("F029")
    assert (reply.failure, reply.text, reply.usage.completion_tokens) == (None, "Hello world", 4)


def test_f032_a_finish_without_tokens_is_a_failure() -> None:
    reply = fold_openai(events((5, text("", "length")), (6, usage(1048000, 0)), (7, "[DONE]")))
    assert reply.failure is not None
    assert reply.failure.cause == "no-tokens"
    assert "length" in reply.failure.message


def test_f034_reasoning_tokens_are_part_of_the_output_tokens() -> None:
    said = public_faults()["F034"]["repro"]["usage"]
    parts = [(float(k), delta(reasoning_content="x")) for k in range(60)]
    parts += [(float(60 + k), delta(content="y")) for k in range(40)]
    last = {"choices": [], "usage": said}
    reply = fold_openai(events(*parts, (101, delta("stop")), (102, last), (103, "[DONE]")))
    assert reply.failure is None
    assert (reply.usage.completion_tokens, reply.usage.reasoning_tokens) == (100, 60)


def test_f091_a_request_that_produced_nothing_at_once_is_no_success() -> None:
    reply = fold_openai(raw([(0, b'data: {"choices":[],"usage":{"completion_tokens":0}}\n\n')]))
    assert reply.failure is not None
    assert reply.failure.cause == "no-tokens"
    timing, _ = timing_of(reply)
    assert (timing.ttft_s, timing.tpot_ms) == (None, None)


def test_f092_one_token_has_a_ttft_and_no_tpot() -> None:
    reply, timing = read("F092")
    assert reply.failure is None
    assert ms(timing.ttft_s) == pytest.approx(200)
    assert (timing.tpot_ms, timing.tpot_common_ms, timing.max_gap_ms) == (None, None, None)


def test_refusals_keep_their_cause_whatever_the_dialect() -> None:
    for fold in (fold_openai, fold_sglang):
        refused = replace(raw([], status=None, end="refused"), detail="connection refused")
        reply = fold(refused)
        assert reply.failure is not None
        assert (reply.failure.cause, reply.events) == ("refused", ())


@pytest.mark.parametrize("name", stream_faults())
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_every_public_stream_reads_the_same_over_a_real_socket(name: str, framing: str) -> None:
    chunks = [(t / 50.0, data) for t, data in fault_chunks(name)]

    async def main() -> Reply:
        async with ScriptedServer(lambda _: stream_play(chunks, framing=framing)) as server:
            return fold_openai(await send(post(server.url + "/v1/completions", {})))

    got, expected = run(main()), fold_openai(fault(name))
    for part in ("failure", "text", "reasoning", "usage", "finish_reason", "ids", "notes"):
        assert getattr(got, part) == getattr(expected, part)
    assert [e.tokens for e in got.events] == [e.tokens for e in expected.events]
