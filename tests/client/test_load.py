"""The load loops: exactly the requests asked for, never more at once than asked for."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
from typing import Any

import pytest

from qualify.client.load import Window, run_closed_loop, run_sessions
from qualify.client.reply import HttpRequest, RawReply
from qualify.client.stream import fold_openai, fold_sglang
from tests.client.streams import post, run, text, usage
from tests.scripted_engine import (
    Play,
    ScriptedEngine,
    ScriptedServer,
    Seen,
    json_play,
    play,
    sse_play,
    text_play,
)


def answer_after(t_ms: float) -> Play:
    return sse_play([(t_ms, text("a", "stop")), (t_ms, usage(1, 1)), (t_ms, "[DONE]")])


def loop(
    count: int, concurrency: int, answer: Any = None, **options: Any
) -> tuple[Window, dict[int, RawReply], ScriptedServer]:
    async def main() -> tuple[Window, dict[int, RawReply], ScriptedServer]:
        got: dict[int, RawReply] = {}
        async with ScriptedServer(answer or (lambda _: answer_after(10.0))) as server:
            requests = [post(f"{server.url}/{k}", {"k": k}) for k in range(count)]
            window = await run_closed_loop(requests, concurrency, got.__setitem__, **options)
        return window, got, server

    return run(main())


@pytest.mark.parametrize(("count", "concurrency"), [(1, 1), (7, 1), (7, 3), (3, 8), (0, 2)])
def test_each_request_is_sent_exactly_once_and_never_too_many_at_once(
    count: int, concurrency: int
) -> None:
    window, got, server = loop(count, concurrency)
    assert sorted(got) == list(range(count))
    assert sorted(seen.path for seen in server.log) == sorted(f"/{k}" for k in range(count))
    assert server.most_open <= concurrency
    assert window.max_in_flight == min(count, concurrency)
    assert (window.asked, window.sent, window.stopped) == (count, count, False)


def test_requests_start_in_order() -> None:
    _, _, server = loop(9, 1)
    assert [seen.path for seen in server.log] == [f"/{k}" for k in range(9)]


def test_a_loop_without_requests_has_no_window() -> None:
    window, _, _ = loop(0, 4)
    assert (window.t_start, window.window_s, window.mean_in_flight) == (None, None, None)


def test_a_concurrency_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        loop(1, 0)


def test_f050_128_requests_are_open_at_once_and_wait_for_no_pool() -> None:
    window, got, server = loop(256, 128, lambda _: answer_after(300.0))
    assert server.most_open == 128
    assert window.max_in_flight == 128
    waits = sorted(raw.connect_s or 0.0 for raw in got.values())
    # A pool of 100 would have made 28 of the first 128 wait 300 ms for a place.
    assert waits[-1] < 0.25
    for raw in got.values():
        assert fold_openai(raw).failure is None
        assert raw.arrivals[0].t_s < 0.300 + 0.25


def test_f037_every_body_that_was_encoded_is_sent_and_no_other() -> None:
    _, _, server = loop(64, 16)
    assert len({hashlib.sha256(seen.body).digest() for seen in server.log}) == 64


def test_f047_the_concurrency_really_reached_is_reported() -> None:
    def answer(seen: Seen) -> Play:
        return answer_after(300.0 if seen.path == "/2" else 100.0)

    window, _, _ = loop(3, 3, answer)
    assert window.max_in_flight == 3
    assert window.mean_in_flight == pytest.approx(5 / 3, abs=0.25)


def test_f052_the_spread_of_the_opening_burst_and_each_send_are_on_record() -> None:
    window, got, _ = loop(64, 32)
    sends = sorted(raw.t_sent for raw in got.values())
    assert window.send_spread_s is not None
    assert window.send_spread_s == pytest.approx(sends[31] - sends[0])
    assert window.t_start == sends[0]
    for raw in got.values():
        assert raw.send_s is not None
        assert raw.t_headers_s is not None
        assert 0 <= raw.send_s <= raw.t_headers_s <= raw.t_end_s


def test_f043_what_a_gate_takes_is_in_no_requests_time_and_not_in_the_window() -> None:
    async def main() -> tuple[Window, RawReply]:
        got: list[RawReply] = []

        def answer(seen: Seen) -> Play:
            return text_play("flushed", t_ms=300.0) if "flush" in seen.path else answer_after(10)

        async with ScriptedServer(answer) as server:

            async def flush(_: int) -> None:
                await run_closed_loop([post(f"{server.url}/flush")], 1)

            window = await run_closed_loop(
                [post(server.url)], 1, lambda _, raw: got.append(raw), gate=flush
            )
        return window, got[0]

    window, raw = run(main())
    assert raw.t_end_s < 0.2
    assert window.window_s == pytest.approx(raw.t_end_s)


def test_stopping_cancels_what_runs_and_starts_no_more() -> None:
    async def main() -> tuple[Window, dict[int, RawReply], int]:
        stop = asyncio.Event()
        got: dict[int, RawReply] = {}
        begun: list[Seen] = []

        def answer(seen: Seen) -> Play:
            begun.append(seen)
            if len(begun) == 3:
                asyncio.get_running_loop().call_later(0.2, stop.set)
            return sse_play([(0.0, text("a")), (60_000.0, text("b"))])

        async with ScriptedServer(answer) as server:
            requests = [post(server.url)] * 10
            window = await run_closed_loop(requests, 3, got.__setitem__, stop=stop)
            return window, got, len(server.log)

    window, got, seen = run(main())
    assert (window.stopped, window.sent, seen) == (True, 3, 3)
    assert sorted(got) == [0, 1, 2]
    for raw in got.values():
        assert raw.end == "cancelled"
        assert fold_openai(raw).text == "a"
    assert window.window_s is not None
    assert window.window_s < 30.0


def test_a_loop_that_was_stopped_before_it_began_sends_nothing() -> None:
    async def main() -> Window:
        stop = asyncio.Event()
        stop.set()
        return await run_closed_loop([post("http://127.0.0.1:9")], 1, stop=stop)

    assert run(main()).sent == 0


def test_failures_are_handed_over_like_successes() -> None:
    def answer(seen: Seen) -> Play:
        kinds = [
            json_play({"error": "busy"}, 503),
            play(),
            sse_play([(0.0, text("a"))], finish=False, close="reset"),
            answer_after(1.0),
        ]
        return kinds[int(seen.path[1:]) % 4]

    window, got, _ = loop(8, 4, answer)
    failures = [fold_openai(got[k]).failure for k in range(8)]
    causes = [f.cause if f else None for f in failures]
    assert causes[0::4] == ["http-status"] * 2
    assert causes[1::4] == ["reset"] * 2
    assert all(c in ("reset", "truncated-stream") for c in causes[2::4])
    assert causes[3::4] == [None] * 2
    assert window.sent == 8


def test_an_error_of_the_caller_ends_the_loop_and_is_raised() -> None:
    def broken(_: int, __: RawReply) -> None:
        raise RuntimeError("disk full")

    async def main() -> None:
        async with ScriptedServer(lambda _: answer_after(1.0)) as server:
            await run_closed_loop([post(server.url)] * 4, 2, broken)

    with pytest.raises(RuntimeError, match="disk full"):
        run(main())
    assert gc.isenabled()


def test_the_garbage_collector_rests_during_a_window_and_only_then() -> None:
    seen: list[bool] = []

    def answer(_: Seen) -> Play:
        seen.append(gc.isenabled())
        return answer_after(1.0)

    loop(2, 1, answer)
    assert seen == [False, False]
    assert gc.isenabled()


def test_the_clients_own_lateness_is_measured_while_it_happens() -> None:
    def slow(_: Seen) -> Play:
        # In this test the server shares the client's loop, so a busy server is a busy client.
        end = asyncio.get_running_loop().time() + 0.12
        while asyncio.get_running_loop().time() < end:
            pass
        return answer_after(0.0)

    window, got, _ = loop(1, 1, slow)
    assert got[0].client_delay_ms is not None
    assert got[0].client_delay_ms > 90
    assert window.client_delay_ms > 90
    quiet, calm, _ = loop(1, 1)
    assert calm[0].client_delay_ms is not None
    assert calm[0].client_delay_ms < 90
    assert 0 < quiet.cpu_share < 1.5


def test_sessions_send_each_turn_after_the_reply_of_the_last_one() -> None:
    turns: dict[tuple[int, int], tuple[int, ...]] = {}
    prompts: dict[int, list[int]] = {k: [10 + k] * 8 for k in range(3)}

    async def main() -> tuple[Window, ScriptedEngine]:
        async with ScriptedEngine("sglang", ttft_ms=2, step_ms=1) as engine:

            def session(k: int) -> Any:
                left = [4]

                def next_request(before: RawReply | None) -> HttpRequest | None:
                    if before is not None:
                        prompts[k] += [*(fold_sglang(before).ids or ()), 99]
                    left[0] -= 1
                    body = {
                        "input_ids": prompts[k],
                        "stream": True,
                        "sampling_params": {"max_new_tokens": 5, "ignore_eos": True},
                    }
                    return post(f"{engine.url}/generate", body) if left[0] >= 0 else None

                return next_request

            def done(k: int, turn: int, raw: RawReply) -> None:
                reply = fold_sglang(raw)
                assert reply.failure is None
                assert reply.usage.cached_tokens is not None
                turns[k, turn] = (reply.usage.prompt_tokens or 0, reply.usage.cached_tokens)

            window = await run_sessions([session(k) for k in range(3)], 2, done)
            return window, engine

    window, engine = run(main())
    assert window.sent == 12
    assert engine.most_open <= 2
    for k in range(3):
        # Each turn is 5 answers and 1 new token longer, and reuses all of the one before.
        assert [turns[k, t] for t in range(4)] == [(8, 0), (14, 13), (20, 19), (26, 25)]
    longest = max(json.loads(seen.body)["input_ids"] for seen in engine.log)
    assert len(longest) == 26
