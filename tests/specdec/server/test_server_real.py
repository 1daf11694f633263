"""The server around the real core, on a small random checkpoint."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_live import Live, serve, with_settings
from server_process import READY, running
from specdec.contract import DecodeRunner, Mode, RunnerOptions
from specdec.tokenizer import Tokenizer

PROMPTS = [
    [3 + (11 * i + 5 * j * j) % 370 for j in range(length)]
    for i, length in enumerate((1, 7, 31, 64, 65, 100, 17, 130))
]
GREEDY = {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}


def loader(checkpoint: Path, **options: Any) -> Callable[[], DecodeRunner]:
    def load() -> DecodeRunner:
        from specdec.runner import Runner

        defaults: dict[str, Any] = {"device": "cpu", "threads": 1, "prefill_chunk_tokens": 64}
        if (mode := options.get("mode")) in ("dflash2", "dspark"):
            defaults["draft_model"] = checkpoint / mode
        return Runner.load(checkpoint, RunnerOptions(**{**defaults, **options}))

    return load


def ask_all(
    live: Live, prompts: list[list[int]] = PROMPTS, params: dict[str, Any] = GREEDY
) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = [{} for _ in prompts]

    def ask(index: int) -> None:
        answers[index] = live.generate(input_ids=prompts[index], sampling_params=params)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def ids(answers: list[dict[str, Any]]) -> list[list[int]]:
    return [answer["output_ids"] for answer in answers]


@pytest.fixture(scope="module")
def alone(checkpoint: Path, tokenizer: Tokenizer) -> list[list[int]]:
    """Target-only, one request at a time: what everything else must reproduce."""
    with serve(loader(checkpoint, max_running_requests=1), tokenizer) as live:
        return ids([live.generate(input_ids=p, sampling_params=GREEDY) for p in PROMPTS])


@pytest.fixture(scope="module", params=["target-only", "mtp", "dflash2", "dspark"])
def live(request: pytest.FixtureRequest, checkpoint: Path, tokenizer: Tokenizer) -> Iterator[Live]:
    mode: Mode = request.param
    with serve(loader(checkpoint, mode=mode), tokenizer, with_settings(mode=mode)) as server:
        yield server


def test_greedy_output_is_the_same_alone_and_in_a_batch_in_every_mode(
    live: Live, alone: list[list[int]]
) -> None:
    assert ids(ask_all(live)) == alone
    assert ids([live.generate(input_ids=p, sampling_params=GREEDY) for p in PROMPTS]) == alone


def test_the_counts_add_up_in_every_mode(live: Live) -> None:
    answers = ask_all(live)
    drafts_were_right = any(answer["meta_info"]["correct_drafts"] for answer in answers)
    drafting = live.engine.info.mode != "target-only"
    assert drafts_were_right == drafting
    for answer in answers:
        meta = answer["meta_info"]
        gained = meta["prefill_tokens"] + meta["correct_drafts"] + meta["verify_steps"]
        assert gained + meta["plain_tokens"] - meta["trimmed_tokens"] == 24
        assert (meta["verify_steps"] > 0) == drafting
        assert ("confidence_mean" in meta) == (live.engine.info.mode == "dspark")


def test_a_pool_too_small_for_all_retracts_and_gives_the_same_bytes(
    live: Live, checkpoint: Path, tokenizer: Tokenizer, alone: list[list[int]]
) -> None:
    load = loader(checkpoint, mode=live.engine.info.mode, max_total_tokens=320)
    with serve(load, tokenizer) as small:
        # Two pages each at first and a third one soon: two run in five pages until they grow.
        prompts = [[*PROMPTS[7], *PROMPTS[i]][i : i + 120] for i in range(3)]
        crowded = ask_all(small, prompts)
        single = [small.generate(input_ids=p, sampling_params=GREEDY) for p in prompts]
        retractions = [answer["meta_info"]["num_retractions"] for answer in crowded]
        assert sum(retractions) > 0
        assert small.engine.scheduler.totals.retractions == sum(retractions)
        assert all(answer["meta_info"]["num_retractions"] == 0 for answer in single)
        assert ids(crowded) == ids(single)
        assert small.engine.scheduler.runner.pool.used_tokens == 0


def test_cancelled_requests_leave_the_others_bytes_alone(
    live: Live, alone: list[list[int]]
) -> None:
    def leave(index: int) -> None:
        body = {"input_ids": PROMPTS[index], "sampling_params": {**GREEDY, "max_new_tokens": 300}}
        with pytest.raises(httpx.ReadTimeout):
            live.client.post("/generate", json=body, timeout=0.05 + 0.02 * index)

    leavers = [threading.Thread(target=leave, args=(i,)) for i in range(4)]
    for thread in leavers:
        thread.start()
    assert ids(ask_all(live)) == alone
    for thread in leavers:
        thread.join()
    assert live.client.post("/flush_cache?timeout=10").status_code == 200
    runner = live.engine.scheduler.runner
    assert runner.free_slots == live.engine.info.max_running_requests
    assert runner.pool.used_tokens == 0


def test_unknown_ids_and_too_much_are_refused_with_a_sentence(live: Live) -> None:
    vocab = live.engine.info.vocab_size
    for body in (
        {"input_ids": [vocab]},
        {"input_ids": [5] * 513},
        {"input_ids": [5] * 500, "sampling_params": {"max_new_tokens": 13}},
    ):
        answer = live.client.post("/generate", json=body)
        assert answer.status_code == 400
        assert len(answer.json()["error"]["message"]) > 20
    exact = {"input_ids": [5] * 500, "sampling_params": {**GREEDY, "max_new_tokens": 12}}
    assert live.generate(**exact)["meta_info"]["completion_tokens"] == 12


def test_a_seed_makes_sampling_repeatable(live: Live) -> None:
    def sample(seed: int) -> list[int]:
        params = {"temperature": 1.0, "max_new_tokens": 16, "ignore_eos": True}
        body = {"input_ids": PROMPTS[2], "sampling_params": {**params, "sampling_seed": seed}}
        return live.generate(**body)["output_ids"]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_log_probabilities_are_the_models_own_and_refused_by_dflash2(live: Live) -> None:
    body = {"input_ids": PROMPTS[3], "sampling_params": GREEDY, "top_logprobs_num": 2}
    if live.engine.info.mode == "dflash2":
        before = live.engine.scheduler.totals.prefilled_tokens
        refused = live.client.post("/generate", json={**body, "return_logprob": True})
        assert refused.status_code == 400
        said = refused.json()["error"]["message"]
        assert said.startswith("Log-probabilities are not returned in mode dflash2.")
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "logprobs": True}
        refused = live.client.post("/v1/chat/completions", json=chat)
        assert refused.status_code == 400
        assert "mode dflash2" in refused.json()["message"]
        assert live.engine.scheduler.totals.prefilled_tokens == before  # nothing was scheduled
        return
    answer = live.generate(**body, return_logprob=True)
    meta = answer["meta_info"]
    for (own, token, _), top in zip(
        meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True
    ):
        # Greedy: the chosen token is the most probable one.
        assert top[0][1] == token
        assert own == pytest.approx(top[0][0], abs=1e-5)
        assert top[1][0] <= own <= 0


def test_the_command_serves_the_checkpoint_and_ends_with_0(
    checkpoint: Path, alone: list[list[int]]
) -> None:
    command = [sys.executable, "-m", "specdec", "serve", "--model", str(checkpoint)]
    command += ["--mode", "mtp", "--port", "0", "--threads", "1", "--served-model-name", "tiny"]
    command += ["--enable-metrics", "--decode-log-interval", "4", "--draft-steps", "2"]
    with running(command) as server:
        server.wait_for(READY)
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            assert client.get("/health").status_code == 200
            info = client.get("/server_info").json()
            assert (info["mode"], info["served_model_name"]) == ("mtp", "tiny")
            assert client.get("/model_info").json()["architectures"] == ["Qwen3_5ForCausalLM"]
            body = {"input_ids": PROMPTS[4], "sampling_params": GREEDY}
            assert client.post("/generate", json=body).json()["output_ids"] == alone[4]
            chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
            assert client.post("/v1/chat/completions", json=chat).status_code == 200
            assert client.post("/flush_cache").status_code == 200
            assert "sglang:generation_tokens_total" in client.get("/metrics").text
        server.signal()
        assert server.wait(16) == 0
    log = "\n".join(server.log)
    pool = info["max_total_num_tokens"]
    assert f"KV Cache is allocated. dtype: torch.float32, #tokens: {pool}, K size: " in log
    assert "Mamba Cache is allocated. max_mamba_cache_size: 8, conv_state size: " in log
    assert f"max_total_num_tokens={pool}, chunked_prefill_size=512, " in log
    assert "Prefill batch, #new-seq: 1, #new-token: 65, #cached-token: 0, " in log
    assert "Decode batch, #running-req: 1, #full token: " in log
    assert "accept len: " in log
    assert "Cache flushed successfully!" in log


def test_the_command_says_which_drafter_it_serves(checkpoint: Path, alone: list[list[int]]) -> None:
    command = [sys.executable, "-m", "specdec", "serve", "--model", str(checkpoint)]
    command += ["--mode", "dflash2", "--draft-model", str(checkpoint / "dflash2")]
    command += ["--draft-kv", "ring", "--max-running-requests", "2", "--port", "0"]
    command += ["--threads", "1", "--enable-metrics", "--decode-log-interval", "4"]
    with running(command) as server:
        server.wait_for(READY)
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            info = client.get("/server_info").json()
            body = {"input_ids": PROMPTS[4], "sampling_params": GREEDY}
            for cached in (0, len(PROMPTS[4]) - 1):
                answer = client.post("/generate", json=body).json()
                assert answer["output_ids"] == alone[4]
                assert answer["meta_info"]["cached_tokens"] == cached
            metrics = client.get("/metrics").text
        server.signal()
        assert server.wait(16) == 0
    assert (info["mode"], info["speculative_algorithm"]) == ("dflash2", "DFLASH")
    assert info["speculative_draft_model_class"] == "DFlash2DraftModel"
    assert info["speculative_draft_model_path"] == str(checkpoint / "dflash2")
    assert (info["speculative_num_steps"], info["speculative_num_draft_tokens"]) == (7, 8)
    assert (info["speculative_dflash_block_size"], info["draft_kv_rows"]) == (8, 2 * 128)
    assert info["speculative_draft_window_size"] == 40
    assert "sglang:spec_num_draft_tokens" in metrics
    assert 'model_class="DFlash2DraftModel"' in metrics
    log = "\n".join(server.log)
    assert (
        "Initialized DFLASH draft runner. attention_backend=sdpa, model=DFlash2DraftModel, "
        "block_size=8, draft_window_size=40, compact_cache=True"
    ) in log
    assert "DFLASH draft runner ready. mask_token=" in log
    assert "mask_token_id=250" in log
    assert "KV Cache is allocated. dtype: torch.float32, #tokens: 256, K size: " in log
