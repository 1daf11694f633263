"""Reuse as clients of the server see it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SERVER_TESTS = Path(__file__).parents[1] / "server"
sys.path.insert(0, str(SERVER_TESTS))

from server_checkpoint import build_checkpoint  # noqa: E402
from server_live import Live, serve, with_settings  # noqa: E402
from specdec.contract import RunnerOptions  # noqa: E402
from specdec.runner import Runner  # noqa: E402
from specdec.settings import ServeSettings  # noqa: E402
from specdec.tokenizer import Tokenizer  # noqa: E402

PROMPT = [3 + (7 * i + i * i) % 370 for i in range(256)]
GREEDY = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("served"))


def served(folder: Path, **changes: Any) -> Any:
    settings = with_settings(
        mode="mtp", threads=1, enable_metrics=True, enable_cache_report=True, **changes
    )
    return serve(
        lambda: Runner.load(folder, settings.runner_options()), Tokenizer.load(folder), settings
    )


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[Live]:
    with served(folder) as server:
        yield server
        server.engine.scheduler.runner.check_integrity()


def ask(live: Live, prompt: list[int] = PROMPT, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = live.generate(input_ids=prompt, sampling_params=GREEDY, **fields)
    return answer


def reused(answer: dict[str, Any]) -> tuple[int, str]:
    meta = answer["meta_info"]
    assert meta["cached_tokens_details"] == {"device": meta["cached_tokens"], "host": 0}
    return meta["cached_tokens"], meta["prefix_resume_source"]


def flush(live: Live) -> None:
    assert live.client.post("/flush_cache?timeout=10").status_code == 200


def metric(live: Live, name: str) -> float:
    lines = live.client.get("/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"sglang:{name}{{"))


def test_a_planted_prompt_of_256_tokens_is_cold_then_warm_then_flushed(live: Live) -> None:
    flush(live)
    answers = [ask(live), ask(live)]
    flush(live)
    answers.append(ask(live))
    assert [reused(answer) for answer in answers] == [(0, "empty"), (255, "snapshot"), (0, "empty")]
    assert len({tuple(answer["output_ids"]) for answer in answers}) == 1


def test_a_conversation_goes_on_from_the_end_of_its_last_turn(live: Live) -> None:
    flush(live)
    first = ask(live)
    second = ask(live, [*PROMPT, *first["output_ids"], 5, 6, 7])
    assert reused(second) == (256 + 8 - 1, "live")
    assert second["meta_info"]["prefix_matched_tokens"] == 263
    assert second["meta_info"]["prompt_tokens"] == 267


def test_usage_of_the_openai_routes_tells_what_was_reused(live: Live) -> None:
    flush(live)
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
    cached = [
        live.client.post("/v1/completions", json=body).json()["usage"]["prompt_tokens_details"]
        for _ in range(2)
    ]
    assert cached == [{"cached_tokens": 0}, {"cached_tokens": 255}]


@pytest.mark.parametrize("path", ["/generate", "/v1/completions", "/v1/chat/completions"])
def test_salts_keep_tenants_apart_on_every_route(path: str, live: Live) -> None:
    flush(live)
    prompt = {"prompt": PROMPT} if path == "/v1/completions" else {"input_ids": PROMPT}
    length = {"sampling_params": GREEDY} if path == "/generate" else {"max_tokens": 4}
    found = []
    for keys in (
        {},
        {"cache_salt": "a"},
        {"extra_key": "a"},
        {"cache_salt": ""},
        {"cache_salt": "a"},
    ):
        answer = live.client.post(path, json={**prompt, **length, **keys})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        usage = body.get("meta_info") or body["usage"]["prompt_tokens_details"]
        found.append(usage["cached_tokens"])
    assert found == [0, 0, 0, 255, 255]


def test_kept_pages_count_as_evictable_and_not_as_used(live: Live) -> None:
    flush(live)
    assert metric(live, "kv_evictable_tokens") == 0
    ask(live)
    ask(live)
    pool = live.engine.info.max_total_tokens
    assert metric(live, "kv_used_tokens") == metric(live, "token_usage") == 0
    assert metric(live, "kv_evictable_tokens") >= 256
    assert metric(live, "kv_available_tokens") == pool - metric(live, "kv_evictable_tokens")
    assert metric(live, "mamba_evictable_tokens") > 0
    assert metric(live, "mamba_usage") == 0
    assert metric(live, "cache_hit_rate") == 255 / 256
    state = live.client.get("/server_info").json()["internal_states"][0]
    assert state["prefix_snapshots"] == metric(live, "mamba_evictable_tokens")
    assert state["prefix_snapshot_bytes"] > 0


def test_many_at_once_share_a_prefix_and_agree_with_one_alone(live: Live) -> None:
    flush(live)
    prompts = [[*PROMPT, *range(20 + i, 60 + 3 * i)] for i in range(8)]
    alone = []
    for prompt in prompts:
        flush(live)
        alone.append(ask(live, prompt)["output_ids"])
    ask(live)
    answers: dict[int, dict[str, Any]] = {}
    threads = [
        threading.Thread(target=lambda i=i: answers.update({i: ask(live, prompts[i])}))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[i]["output_ids"] for i in range(8)] == alone
    assert all(answers[i]["meta_info"]["cached_tokens"] >= 256 for i in range(8))


def test_without_the_cache_nothing_is_reused_and_no_snapshot_is_taken(folder: Path) -> None:
    with served(folder, prefix_cache=False) as live:
        facts = live.client.get("/server_info").json()
        assert facts["disable_radix_cache"] is True
        assert [reused(ask(live)) for _ in range(2)] == [(0, "empty")] * 2
        state = live.client.get("/server_info").json()["internal_states"][0]
        assert (state["prefix_snapshots"], state["prefix_snapshot_bytes"]) == (0, 0)


def test_the_cache_is_on_unless_told_otherwise(live: Live) -> None:
    assert ServeSettings(Path("m")).runner_options().prefix_cache
    assert not RunnerOptions().prefix_cache
    assert live.client.get("/server_info").json()["disable_radix_cache"] is False
