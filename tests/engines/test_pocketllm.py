"""PocketLLM's adapter with real processes that speak the worker's lines, and its protocol."""

from __future__ import annotations

import asyncio
import stat
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from qualify.client.timing import timing_of
from qualify.engines.pocketllm import PocketLLMProtocol
from qualify.engines.protocol import Sampling
from qualify.engines.ready import wait_ready
from qualify.engines.resolve import ResolvedLaunch, resolve
from qualify.engines.server import RunningServer, launch
from qualify.engines.spec import load_engine
from qualify.errors import CellError, EngineError
from tests.engines.protocols import GREEDY, body_of, prompt

WORKER = Path(__file__).with_name("scripted_pocketllm.py")
NEW = Sampling(output_tokens=9)


def engine(folder: Path, *flags: str, mode: str = "mtp", profile: str = "cold") -> ResolvedLaunch:
    """The project's own definition with the scripted worker as its binary, two ranks."""
    binary = folder / "pocketllm_engine"
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} {WORKER} "$@" {" ".join(flags)}\n')
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    args: dict[str, Any] = {"engine": str(binary), "tp-world": 2, "devices": "4,6"}
    return resolve(
        load_engine("pocketllm"),
        mode,
        profile,
        {**args, "max-context": 64},
        {"DSV4_TEST": "on"},
        str(folder),
    )


async def ask(server: RunningServer, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        return await client.post(f"{server.base_url}/generate", json=body)


def run(resolved: ResolvedLaunch, folder: Path, *prompts: tuple[int, ...]) -> list[Any]:
    """What the adapter answers to each prompt, then the log."""

    async def go() -> list[Any]:
        async with launch(resolved, folder, "a") as server:
            await wait_ready(server, timeout_s=30)
            found: list[Any] = [await server.protocol.capabilities()]
            for ids in prompts:
                request = server.protocol.encode(prompt(*ids), NEW, request_id="r")
                found.append(await ask(server, body_of(request)))
            return found

    return [*asyncio.run(go()), (folder / "engine-a.log").read_text()]


def test_ranks_share_a_new_id_file_and_have_a_gpu_each(tmp_path: Path) -> None:
    *_, log = run(engine(tmp_path), tmp_path)
    assert "[rank 0] argv" in log
    for rank, gpu in ((0, 4), (1, 6)):
        line = next(x for x in log.splitlines() if x.startswith(f"[rank {rank}] argv"))
        assert line.endswith(f"gpu {gpu}")
        for said in (f"--tp-rank {rank}", "--tp-world 2", "--smoke-layers 0", "--device 0"):
            assert said in line
    assert "[rank 0] switch on on" in log  # under the name before and after the renaming


def test_an_answer_carries_ids_counts_and_the_engines_own_seconds(tmp_path: Path) -> None:
    able, answer, log = run(engine(tmp_path), tmp_path, (5, 6, 7))
    assert able.no_prefix_cache is True
    assert able.flush is False
    said = answer.json()
    assert said["output_ids"] == [18 + k for k in range(9)]
    meta = said["meta_info"]
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (3, 9)
    assert meta["engine"]["prefill_seconds"] == 0.2
    assert meta["engine"]["decode_seconds"] == 0.3
    assert meta["rank_token_parity"] is True
    assert "qwen_persistent_worker_result" in log


def test_evaluations_know_that_it_does_not_end_an_answer(tmp_path: Path) -> None:
    able, *_ = run(engine(tmp_path), tmp_path)
    assert able.ends is False


def test_ranks_that_disagree_are_reported(tmp_path: Path) -> None:
    _, answer, _ = run(engine(tmp_path, "--rank-lies"), tmp_path, (5, 6, 7))
    assert answer.json()["meta_info"]["rank_token_parity"] is False


def test_the_prefix_cache_is_seen_in_a_session_profile(tmp_path: Path) -> None:
    able, first, again, _ = run(engine(tmp_path, profile="session"), tmp_path, (1, 2, 3), (1, 2, 3))
    assert able.no_prefix_cache is False
    cached = [a.json()["meta_info"]["cached_tokens"] for a in (first, again)]
    assert cached == [0, 2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"input_ids": list(range(60))}, "above max_context 64"),
        ({"text": "hello", "input_ids": None}, "there is no tokenizer"),
        ({"sampling_params": {"max_new_tokens": 4, "temperature": 0.7}}, "greedy"),
        ({"sampling_params": {"max_new_tokens": 4, "temperature": 0}}, "ignore_eos"),
        ({"sampling_params": {"max_new_tokens": 0, "temperature": 0}}, "at least 1"),
    ],
)
def test_what_would_end_the_worker_is_refused_and_the_next_request_is_served(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    async def go() -> tuple[httpx.Response, httpx.Response]:
        async with launch(engine(tmp_path), tmp_path, "a") as server:
            await wait_ready(server, timeout_s=30)
            good = body_of(server.protocol.encode(prompt(1, 2), NEW, request_id="r"))
            return await ask(server, {**good, **changes}), await ask(server, good)

    refused, served = asyncio.run(go())
    assert refused.status_code == 400
    assert said in refused.json()["error"]["message"]
    assert served.json()["output_ids"][0] == 3


def test_a_rank_that_dies_at_start_ends_the_launch_with_its_words(tmp_path: Path) -> None:
    async def go() -> None:
        async with launch(engine(tmp_path, "--die-at-start"), tmp_path, "a") as server:
            await wait_ready(server, timeout_s=60)

    with pytest.raises(EngineError) as caught:
        asyncio.run(go())
    assert "out of device memory" in caught.value.remedy
    assert "exit code 1" in caught.value.message


def test_a_stop_is_an_end_of_input_and_a_clean_exit(tmp_path: Path) -> None:
    async def go() -> Any:
        async with launch(engine(tmp_path), tmp_path, "a") as server:
            await wait_ready(server, timeout_s=30)
            assert server.process is not None
            return await server.process.stop()

    assert asyncio.run(go()).code == 0


def document(meta: dict[str, Any], ids: list[int]) -> Any:
    import json
    from dataclasses import replace

    from qualify.client.reply import Arrival
    from tests.engines.protocols import sse

    data = json.dumps({"text": "", "output_ids": ids, "meta_info": meta}).encode()
    return replace(
        sse({}),
        headers=(("content-type", "application/json"),),
        arrivals=(Arrival(1.5, data),),
        t_end_s=1.5,
    )


def test_nothing_streamed_means_no_first_token_and_no_rate() -> None:
    """The stress case of PocketLLM's guide: 31 of 182 drafts right, blocks of seven."""
    engine_said = {
        "mtp_verify_count": 26,
        "mtp_proposed_drafts": 182,
        "mtp_correct_drafts": 31,
        "decode_seconds": 3.6,
        "mtp_verify_seconds": 2.5,
    }
    meta = {
        "finish_reason": {"type": "length", "length": 64},
        "prompt_tokens": 16,
        "completion_tokens": 64,
        "cached_tokens": 0,
        "engine": engine_said,
        "rank_token_parity": False,
    }
    protocol = PocketLLMProtocol("http://127.0.0.1:1", drafter="model")
    reply = protocol.decode(document(meta, list(range(64))))
    assert reply.failure is None
    timing, _ = timing_of(reply)
    assert (timing.ttft_s, timing.tpot_ms, timing.tpot_common_ms) == (None, None, None)
    spec = reply.speculation
    assert spec is not None
    assert (spec.V, spec.P, spec.C, spec.N0, spec.T, spec.W) == (26, 182, 31, 1, None, None)
    assert spec.phases_s == {"verify": 2.5}
    assert "the tensor-parallel ranks generated different tokens" in reply.notes
    assert reply.extras["meta_info"]["engine"]["decode_seconds"] == 3.6


@pytest.mark.parametrize("sampling", [Sampling(8, temperature=0.6), Sampling(8, ignore_eos=False)])
def test_sampling_that_the_worker_cannot_do_is_refused_before_it_is_sent(
    sampling: Sampling,
) -> None:
    with pytest.raises(CellError, match="greedy"):
        PocketLLMProtocol("http://127.0.0.1:1").encode(prompt(1), sampling, request_id="r")


def test_a_prompt_without_ids_or_a_bypass_is_refused() -> None:
    protocol = PocketLLMProtocol("http://127.0.0.1:1")
    with pytest.raises(CellError, match="no token ids"):
        protocol.encode(prompt(exact=True), GREEDY, request_id="r")
    with pytest.raises(CellError, match="no per-request switch"):
        protocol.encode(prompt(1), GREEDY, request_id="r", bypass_cache=True)


def test_the_definition_never_lets_one_layer_stand_for_all() -> None:
    text = (load_engine("pocketllm").file).read_text()
    assert "smoke-layers" not in yaml.safe_load(text)["args"]
