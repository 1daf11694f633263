"""SGLang's /generate and llama.cpp's /completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from qualify.client.reply import RawReply
from qualify.client.stream import fold_llamacpp, fold_sglang
from qualify.client.timing import timing_of
from tests.client.streams import events, raw

# Three steps of 1, 3 and 2 tokens; ids and pieces of each.
STEPS = [(10.0, "a", [1]), (30.0, "bcd", [2, 3, 4]), (50.0, "ef", [5, 6])]


def sglang(*, cumulative: bool, ids: bool = True, steps: Sequence[Any] = STEPS) -> RawReply:
    said: list[tuple[float, Any]] = []
    all_text: str = ""
    all_ids: list[int] = []
    for k, (t, piece, new) in enumerate(steps):
        all_text, all_ids = all_text + piece, all_ids + new
        last = k == len(steps) - 1
        meta: dict[str, Any] = {
            "finish_reason": {"type": "length", "length": len(all_ids)} if last else None,
            "prompt_tokens": 512,
            "cached_tokens": 7,
            "completion_tokens": len(all_ids),
            "reasoning_tokens": 0,
        }
        if last:
            meta["spec_verify_ct"] = 2
        event: dict[str, Any] = {"text": all_text if cumulative else piece, "meta_info": meta}
        if ids:
            event["output_ids"] = list(all_ids) if cumulative else new
        said.append((t, event))
    return events(*said, (51.0, "[DONE]"))


@pytest.mark.parametrize("cumulative", [True, False])
@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_cumulative_and_incremental_streams_say_the_same(
    cumulative: bool, ids: bool, told: bool
) -> None:
    reply = fold_sglang(
        sglang(cumulative=cumulative, ids=ids), cumulative=cumulative if told else None
    )
    assert reply.failure is None
    assert reply.text == "abcdef"
    assert [e.text for e in reply.events] == ["a", "bcd", "ef"]
    assert [e.tokens for e in reply.events] == [1, 3, 2]
    assert reply.ids == ((1, 2, 3, 4, 5, 6) if ids else None)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (512, 6)
    assert (reply.usage.cached_tokens, reply.finish_reason) == (7, "length")
    assert reply.extras["meta_info"]["spec_verify_ct"] == 2
    assert timing_of(reply)[0].tpot_ms == pytest.approx(40 / 5)


def test_deltas_that_happen_to_extend_each_other_are_told_apart_by_their_ids() -> None:
    steps = [(10.0, "a", [1]), (20.0, "aa", [2]), (30.0, "aaa", [3])]
    assert fold_sglang(sglang(cumulative=False, steps=steps)).text == "aaaaaa"
    assert fold_sglang(sglang(cumulative=True, steps=steps)).text == "aaaaaa"


def test_a_cumulative_stream_may_leave_steps_out() -> None:
    whole = sglang(cumulative=True)
    kept = raw([(1000 * a.t_s, a.data) for a in (whole.arrivals[0], *whole.arrivals[2:])])
    reply = fold_sglang(kept)
    assert (reply.failure, reply.text) == (None, "abcdef")
    assert [e.tokens for e in reply.events] == [1, 5]


def test_text_that_is_held_back_is_still_a_token_by_its_id() -> None:
    steps = [(10.0, "", [1]), (20.0, "\u4e2d", [2]), (30.0, "b", [3])]
    timing, _ = timing_of(fold_sglang(sglang(cumulative=True, steps=steps)))
    assert timing.ttft_s == pytest.approx(0.010)
    assert timing.first_visible_s == pytest.approx(0.020)


def test_the_last_version_of_a_cumulative_text_stands() -> None:
    meta = {"finish_reason": None, "prompt_tokens": 1, "completion_tokens": 1}
    first = {"text": "abEN", "output_ids": [1], "meta_info": meta}
    end = {**meta, "finish_reason": {"type": "stop", "matched": "END"}, "completion_tokens": 2}
    last = {"text": "ab", "output_ids": [1, 2], "meta_info": end}
    reply = fold_sglang(events((1, first), (2, last), (3, "[DONE]")))
    assert (reply.failure, reply.text, reply.finish_reason) == (None, "ab", "stop")
    assert any("changed text" in note for note in reply.notes)


def test_an_abort_is_a_failure_with_its_message() -> None:
    meta = {"prompt_tokens": 1, "completion_tokens": 1, "finish_reason": None}
    abort = {**meta, "finish_reason": {"type": "abort", "message": "out of slots"}}
    reply = fold_sglang(
        events(
            (1, {"text": "a", "output_ids": [1], "meta_info": meta}),
            (2, {"text": "a", "output_ids": [1], "meta_info": abort}),
            (3, "[DONE]"),
        )
    )
    assert reply.failure is not None
    assert (reply.failure.cause, reply.text) == ("stream-error", "a")
    assert "out of slots" in reply.failure.message


def test_an_error_in_the_middle_of_generate_keeps_what_came() -> None:
    first = {"text": "a", "output_ids": [1], "meta_info": {"completion_tokens": 1}}
    error = {"error": {"message": "engine died", "code": 500, "retryable": False}}
    reply = fold_sglang(events((1, first), (2, error), (3, "[DONE]")))
    assert reply.failure is not None
    assert (reply.failure.cause, reply.failure.message) == ("stream-error", "500: engine died")
    assert (reply.text, reply.ids) == ("a", (1,))


def llamacpp(**end: Any) -> RawReply:
    tokens = [
        (10.0 * k, {"index": 0, "content": c, "tokens": [k], "stop": False})
        for k, c in enumerate("abc", 1)
    ]
    progress: dict[str, Any] = {"content": "", "tokens": [0], "tokens_predicted": 0, "stop": False}
    progress["prompt_progress"] = {"total": 9}
    last: dict[str, Any] = {
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": "limit",
        "tokens_predicted": 3,
        "tokens_evaluated": 9,
        "tokens_cached": 11,
        "truncated": False,
        "timings": {"cache_n": 4, "prompt_n": 5, "predicted_n": 3, "draft_n": 8},
    }
    return events((1.0, progress), *tokens, (31.0, {**last, **end}))


def test_llamacpp_counts_come_from_the_last_event_and_cached_ones_from_timings() -> None:
    reply = fold_llamacpp(llamacpp())
    assert reply.failure is None
    assert (reply.text, reply.ids, reply.finish_reason) == ("abc", (1, 2, 3), "length")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (9, 3)
    assert reply.usage.cached_tokens == 4
    assert reply.extras["timings"]["draft_n"] == 8
    timing, _ = timing_of(reply)
    assert timing.ttft_s == pytest.approx(0.010)
    assert timing.tpot_ms == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ({"stop_type": "eos"}, "stop"),
        ({"stop_type": "word"}, "stop"),
        ({"stop_type": None, "stopped_limit": True}, "length"),
        ({"stop_type": None, "stopped_eos": True}, "stop"),
    ],
)
def test_llamacpp_stop_kinds_old_and_new_become_finish_reasons(
    end: dict[str, Any], reason: str
) -> None:
    assert fold_llamacpp(llamacpp(**end)).finish_reason == reason


def test_llamacpp_counts_that_disagree_are_noted() -> None:
    reply = fold_llamacpp(llamacpp(tokens_evaluated=10))
    assert reply.usage.prompt_tokens == 10
    assert any("10 prompt tokens" in note for note in reply.notes)


def test_a_llamacpp_stream_without_its_last_event_is_truncated() -> None:
    whole = llamacpp()
    reply = fold_llamacpp(raw([(1000 * a.t_s, a.data) for a in whole.arrivals[:-1]]))
    assert reply.failure is not None
    assert reply.failure.cause == "truncated-stream"


def test_tokens_that_llamacpp_held_back_are_counted_and_their_missing_ids_are_not_made_up() -> None:
    def said(t_ms: float, total: int, content: str, tokens: list[int], **more: Any) -> Any:
        counts = {"tokens_predicted": total, "tokens_evaluated": 8}
        return (t_ms, {"content": content, "tokens": tokens, "stop": False, **counts, **more})

    # Two tokens make one character here; the event of the second names that one only.
    smile = "\U0001f642"
    reply = fold_llamacpp(
        events(
            said(20, 2, smile, [38887]),
            said(40, 4, smile, [38887]),
            said(41, 4, "", [], stop=True, stop_type="limit"),
        )
    )
    assert reply.failure is None
    assert [e.tokens for e in reply.events] == [2, 2]
    assert reply.ids is None
    assert any("2 ids for 4 tokens" in note for note in reply.notes)
    timing, _ = timing_of(reply)
    assert timing.n_first == 2
    assert timing.tpot_ms == pytest.approx(10.0)


def test_the_token_that_ended_generation_may_go_unnamed() -> None:
    meta = {"prompt_tokens": 1, "completion_tokens": 2, "finish_reason": None}
    first = {"text": "ab", "output_ids": [1, 2], "meta_info": meta}
    end = {**meta, "completion_tokens": 3, "finish_reason": {"type": "stop", "matched": 9}}
    last = {"text": "ab", "output_ids": [1, 2], "meta_info": end}
    reply = fold_sglang(events((1, first), (2, last), (3, "[DONE]")))
    assert (reply.failure, reply.ids, reply.notes) == (None, (1, 2), ())


def test_numbers_that_are_none_are_kept_as_unknown_and_not_as_numbers() -> None:
    """json reads NaN and 1e999; a record that held one could not be written (rule 12)."""
    kept = llamacpp(timings={"cache_n": 0, "predicted_ms": float("inf"), "a": [float("nan"), 1.5]})
    extras = fold_llamacpp(kept).extras
    assert extras["timings"] == {"cache_n": 0, "predicted_ms": None, "a": [None, 1.5]}
