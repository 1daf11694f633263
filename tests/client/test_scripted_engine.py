"""The scripted engine itself: its log, its counts and its endpoints can be trusted."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest

from qualify.client.http import send
from qualify.client.load import run_closed_loop
from qualify.client.reply import RawReply, Reply
from qualify.client.stream import fold_llamacpp, fold_openai, fold_sglang
from tests.client.streams import post, run
from tests.scripted_engine import EngineProcess, ScriptedEngine, ScriptedServer, Seen, play
from tests.scripted_engine.model import detokenize, output_ids, plan_steps, tokenize


def generate(engine: ScriptedEngine, ids: list[int], n: int = 8, **more: Any) -> Any:
    sampling = {"max_new_tokens": n, "ignore_eos": True, **more.pop("sampling", {})}
    body = {"input_ids": ids, "sampling_params": sampling, "stream": True, **more}
    return post(f"{engine.url}/generate", body)


async def ask(engine: ScriptedEngine, ids: list[int], n: int = 8, **more: Any) -> Reply:
    return fold_sglang(await send(generate(engine, ids, n, **more)))


def test_writes_happen_when_they_were_due_and_the_log_says_when() -> None:
    async def main() -> tuple[RawReply, Seen]:
        script = play((20.0, b"HTTP/1.1 200 OK\r\n\r\n"), (40.0, b"a"), (70.0, b"b"))
        async with ScriptedServer(lambda _: script) as server:
            return await send(post(server.url)), server.log[0]

    raw, seen = run(main())
    for index, due_ms in enumerate((20.0, 40.0, 70.0)):
        assert due_ms <= seen.write_ms(index) < due_ms + 30.0
    assert [size for _, size in seen.writes] == [19, 1, 1]
    for arrival, (wrote, _) in zip(raw.arrivals, seen.writes[1:], strict=True):
        assert raw.t_sent + arrival.t_s >= wrote


@pytest.mark.parametrize("count", [1, 2, 7, 33])
@pytest.mark.parametrize("accept", [(), (0,), (4,), (3, 0, None, 2), (None,)])
def test_the_counts_of_a_plan_fit_its_tokens(count: int, accept: Any) -> None:
    sizes, spec = plan_steps(count, accept, 4)
    assert sum(sizes) == count
    assert count == 1 + spec.C + spec.V + spec.T
    assert spec.P == 4 * spec.V
    assert sum(spec.histogram) == spec.V
    assert sum(k * n for k, n in enumerate(spec.histogram)) == spec.C


def test_text_and_ids_turn_into_each_other() -> None:
    for text in ("hi \u4e2d w5 w0123 w4095.", "", " w", "w1 w1"):
        assert detokenize(tokenize(text)) == text
    ids = output_ids([1, 2, 3], 50)
    assert tokenize(detokenize(ids)) == ids
    assert output_ids([1, 2, 3], 50) == ids != output_ids([1, 2, 4], 50)
    other = output_ids([1, 2, 3], 50, diverge_at=20)
    assert (other[:20] == ids[:20], other[20] == ids[20]) == (True, False)


def test_a_prefix_is_reused_until_it_is_flushed_and_never_under_another_key() -> None:
    async def main() -> list[int | None]:
        async with ScriptedEngine("sglang", ttft_ms=1, step_ms=1) as engine:
            cached = []
            for ids in ([5] * 10, [5] * 10, [5] * 7 + [6] * 5):
                cached.append((await ask(engine, ids)).usage.cached_tokens)
            cached.append((await ask(engine, [5] * 10, extra_key="other")).usage.cached_tokens)
            assert (await send(post(f"{engine.url}/flush_cache"))).status == 200
            cached.append((await ask(engine, [5] * 10)).usage.cached_tokens)
            return cached

    assert run(main()) == [0, 9, 7, 0, 0]


def test_a_flush_is_refused_while_a_request_runs_and_when_it_is_scripted_so() -> None:
    async def main() -> list[int]:
        async with ScriptedEngine("sglang", ttft_ms=200, flush_responses=[400, 400]) as engine:
            flush = f"{engine.url}/flush_cache"
            statuses = [(await send(post(flush))).status for _ in range(3)]
            running = asyncio.ensure_future(ask(engine, [1, 2, 3], 2))
            await asyncio.sleep(0.05)
            statuses.append((await send(post(flush))).status)
            await running
            statuses.append((await send(post(flush))).status)
            assert [s for _, s in engine.flushes] == statuses
            return [s or 0 for s in statuses]

    assert run(main()) == [400, 400, 200, 400, 200]


def test_an_engine_that_lost_its_client_is_idle_again_at_once() -> None:
    async def main() -> tuple[str, int]:
        async with ScriptedEngine("sglang", ttft_ms=60_000) as engine:
            cancel = asyncio.Event()
            asyncio.get_running_loop().call_later(0.1, cancel.set)
            await send(generate(engine, [1, 2]), cancel=cancel)
            for _ in range(100):
                if not engine.running:
                    break
                await asyncio.sleep(0.01)
            return engine.generations[0].ended, engine.running

    assert run(main()) == ("left", 0)


def test_the_modes_of_one_model_give_the_same_ids_by_different_steps() -> None:
    async def one(accept: Any) -> tuple[Reply, float]:
        async with ScriptedEngine("sglang", accept=accept, ttft_ms=2, step_ms=4) as engine:
            reply = await ask(engine, [9, 8, 7], 21)
            return reply, engine.generations[0].tpot_ms

    plain, slow = run(one(()))
    fast, quick = run(one((3,)))
    assert plain.ids == fast.ids
    assert quick < slow
    meta = fast.extras["meta_info"]
    assert (meta["spec_verify_ct"], meta["spec_num_correct_drafts"]) == (5, 15)
    assert "spec_verify_ct" not in plain.extras["meta_info"]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("http-500", "http-status"),
        ("error", "stream-error"),
        ("cut", "truncated-stream"),
        ("reset", "reset"),
        ("no-usage", "no-usage"),
        ("empty", "no-tokens"),
    ],
)
@pytest.mark.parametrize(
    ("dialect", "path", "fold"),
    [
        ("sglang", "/generate", fold_sglang),
        ("openai", "/v1/completions", fold_openai),
        ("llamacpp", "/completion", fold_llamacpp),
    ],
)
def test_faults_strike_the_generation_that_they_name(
    fault: str, cause: str, dialect: str, path: str, fold: Any
) -> None:
    body = {
        "input_ids" if dialect == "sglang" else "prompt": [1, 2, 3],
        "stream": True,
        "stream_options": {"include_usage": True},
    }

    async def main() -> list[Reply]:
        async with ScriptedEngine(dialect, ttft_ms=1, step_ms=1, faults={1: fault}) as engine:
            replies: list[Reply] = []
            requests = [post(engine.url + path, body)] * 3
            await run_closed_loop(requests, 1, lambda _, raw: replies.append(fold(raw)))
            return replies

    first, struck, last = run(main())
    assert (first.failure, last.failure) == (None, None)
    assert struck.failure is not None
    assert struck.failure.cause == cause


def test_a_stall_ends_at_the_clients_limit() -> None:
    async def main() -> RawReply:
        async with ScriptedEngine("sglang", faults={-1: "stall"}) as engine:
            request = generate(engine, [1, 2])
            limited = post(request.url, json.loads(request.body), idle_timeout_s=0.2)
            return await send(limited)

    raw = run(main())
    assert raw.end == "timeout"
    failure = fold_sglang(raw).failure
    assert failure is not None
    assert (failure.cause, "idle_timeout_s" in failure.message) == ("timeout", True)


def test_a_request_beyond_the_context_is_refused_like_the_real_ones() -> None:
    async def main() -> RawReply:
        async with ScriptedEngine("llamacpp", context=64) as engine:
            return await send(
                post(f"{engine.url}/completion", {"prompt": [1] * 60, "n_predict": 8})
            )

    raw = run(main())
    assert raw.status == 400
    assert b"exceed_context_size_error" in raw.arrivals[0].data


@pytest.mark.parametrize(
    ("dialect", "paths"),
    [
        ("sglang", ["/health", "/ready", "/server_info", "/model_info", "/metrics", "/v1/models"]),
        ("openai", ["/health", "/version", "/metrics", "/v1/models"]),
        ("llamacpp", ["/health", "/props", "/slots", "/metrics", "/v1/models"]),
    ],
)
def test_an_ordinary_http_client_can_use_the_control_endpoints(
    dialect: str, paths: list[str]
) -> None:
    async def main() -> dict[str, int]:
        async with ScriptedEngine(dialect) as engine, httpx.AsyncClient() as client:
            found = {path: (await client.get(engine.url + path)).status_code for path in paths}
            missing = await client.get(f"{engine.url}/nowhere")
            key = "content" if dialect == "llamacpp" else "prompt"
            asked = await client.post(f"{engine.url}/tokenize", json={key: "a w7"})
            assert missing.status_code == 404
            assert asked.json()["tokens"] == [50_097, 7]
            return found

    assert set(run(main()).values()) == {200}


def test_an_engine_is_not_ready_before_its_time() -> None:
    async def main() -> list[int]:
        async with (
            ScriptedEngine("llamacpp", ready_after_s=0.3) as engine,
            httpx.AsyncClient() as client,
        ):
            first = (await client.get(f"{engine.url}/health")).status_code
            await asyncio.sleep(0.35)
            return [first, (await client.get(f"{engine.url}/health")).status_code]

    assert run(main()) == [503, 200]


def test_as_a_process_it_serves_stops_at_sigterm_and_leaves_its_truth() -> None:
    with EngineProcess("--dialect", "llamacpp", "--accept", "3,-", "--ttft-ms", "2") as engine:
        body = {"prompt": [1, 2, 3], "n_predict": 9, "stream": True, "return_tokens": True}
        reply = fold_llamacpp(run(send(post(f"{engine.url}/completion", body))))
        begun = time.monotonic()
        engine.stop()
        assert time.monotonic() - begun < 5.0
    assert reply.failure is None
    assert engine.truth[0]["output"] == list(reply.ids or ())
    assert [n for _, n in engine.truth[0]["events"]] == [1, 4, 1, 3]
    gone = run(send(post(f"{engine.url}/health")))
    assert gone.end == "refused"
