"""Admission, pages, non-finite logits, log-probabilities and launch options."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import random_model, rewrite, save_checkpoint
from driving import finish, generate, greedy, random_prompts, start
from specdec.contract import RunnerOptions
from specdec.errors import CheckpointError, PoolExhausted, RequestRefused, SpecdecError
from specdec.pages import Pages, one_run
from specdec.request import Finish, Phase, SamplingParams
from specdec.runner import NONFINITE_DRAFT, NONFINITE_TARGET, Runner


@pytest.fixture(scope="module")
def runner(random_checkpoint: Path) -> Runner:
    return Runner.load(random_checkpoint, RunnerOptions(max_total_tokens=512))


@pytest.mark.parametrize(
    ("prompt", "changes", "sentence"),
    [
        ([], {}, "prompt is empty"),
        ([5, 256], {}, "Token id 256 at position 1"),
        ([5, -1], {}, "Token id -1"),
        ([5], {"max_new_tokens": 0}, "max_new_tokens is 0"),
        ([5], {"temperature": -0.1}, "temperature"),
        ([5], {"temperature": math.nan}, "temperature"),
        ([5], {"top_p": 0.0}, "top_p"),
        ([5], {"top_k": -1}, "top_k"),
        ([5], {"min_p": 1.5}, "min_p"),
        ([5] * 500, {"max_new_tokens": 13}, "beyond the KV pool"),
        ([5] * 2000, {"max_new_tokens": 49}, "beyond the context length"),
    ],
)
def test_a_request_that_cannot_be_served_whole_is_refused_with_a_remedy(
    prompt: list[int], changes: dict[str, Any], sentence: str, runner: Runner
) -> None:
    with pytest.raises(RequestRefused, match=sentence) as caught:
        runner.new_sequence("r", prompt, SamplingParams(**changes))
    assert caught.value.remedy


def test_admission_takes_a_slot_and_pages_and_release_gives_them_back_once(runner: Runner) -> None:
    seq = runner.new_sequence("r", [1] * 64, greedy(10))
    assert runner.can_admit(seq)
    runner.admit(seq)
    assert runner.pool.used_tokens == 128
    assert runner.free_slots == 7
    runner.release(seq, Finish("abort"))
    runner.release(seq, Finish("stop"))
    assert seq.finish == Finish("abort")
    assert runner.pool.used_tokens == 0
    assert runner.free_slots == 8
    runner.pool.check_integrity()


def test_two_requests_may_carry_the_same_id(random_checkpoint: Path) -> None:
    runner = Runner.load(random_checkpoint, RunnerOptions(max_total_tokens=512))
    seqs = [runner.new_sequence("same", [i + 1] * 10, greedy(5)) for i in range(2)]
    for seq in seqs:
        runner.admit(seq)
    runner.release(seqs[0], Finish("abort"))
    runner.pool.check_integrity()
    finish(runner, seqs)
    assert len(seqs[1].output_ids) == 5


def test_a_full_pool_says_so_before_anything_changes(random_checkpoint: Path) -> None:
    runner = Runner.load(random_checkpoint, RunnerOptions(max_total_tokens=128))
    seqs = start(runner, [[1] * 60, [2] * 60], greedy(40))
    while any(seq.phase is Phase.PREFILL for seq in seqs):
        runner.prefill_step([seq for seq in seqs if seq.phase is Phase.PREFILL])
    while not runner.pages_short(seqs):
        runner.decode_step(seqs)
    before = [(seq.computed, list(seq.output_ids), list(seq.pages)) for seq in seqs]
    with pytest.raises(PoolExhausted):
        runner.decode_step(seqs)
    assert before == [(seq.computed, seq.output_ids, seq.pages) for seq in seqs]


def test_trimming_a_stop_string_keeps_the_count_identity(random_checkpoint: Path) -> None:
    runner = Runner.load(random_checkpoint, RunnerOptions(mode="mtp"))
    (seq,) = start(runner, [[1, 2, 3]], greedy(50))
    runner.prefill_step([seq])
    for _ in range(3):
        runner.decode_step([seq])
    runner.release(seq, Finish("stop", matched="x"))
    runner.trim(seq, 2)
    assert seq.counters.output_tokens() == len(seq.output_ids)
    assert seq.counters.trimmed_tokens == 2


def poisoned(folder: Path, shard: str, name: str) -> Path:
    """A checkpoint that loads, and overflows to infinity and NaN when it runs."""
    save_checkpoint(folder, random_model(9))
    rewrite(folder, shard, lambda tensors: tensors[name].fill_(3e38))
    return folder


def test_draft_logits_that_are_not_finite_are_counted_and_end_the_request(tmp_path: Path) -> None:
    folder = poisoned(tmp_path, "mtp.safetensors", "mtp.layers.0.mlp.down_proj.weight")
    runner = Runner.load(folder, RunnerOptions(mode="mtp"))
    seqs = finish(runner, start(runner, random_prompts(2, (20,), 255, seed=0), greedy(10)))
    for seq in seqs:
        assert seq.finish == Finish("abort", message=NONFINITE_DRAFT)
        assert seq.counters.nonfinite_draft_logits == 1
        assert len(seq.output_ids) == 1  # prefill's token, no silent token 0 after it
    for keys_or_values in (
        runner._core.state.drafter[0].keys,
        runner._core.state.drafter[0].values,
    ):  # type: ignore[union-attr]
        assert bool(torch.isfinite(keys_or_values).all())


def test_target_logits_that_are_not_finite_end_the_request(tmp_path: Path) -> None:
    folder = poisoned(tmp_path, "model.safetensors", "model.layers.3.mlp.down_proj.weight")
    runner = Runner.load(folder)
    (seq,) = finish(runner, start(runner, [[1, 2, 3]], greedy(10)))
    assert seq.finish == Finish("abort", message=NONFINITE_TARGET)
    assert seq.output_ids == []


def test_one_bad_sequence_does_not_disturb_its_neighbours(agreeing: Path) -> None:
    prompts = random_prompts(3, (30,), 255, seed=4)
    expected = generate(Runner.load(agreeing), prompts, greedy(20), 1)
    runner = Runner.load(agreeing, RunnerOptions(mode="mtp"))
    seqs = start(runner, prompts, greedy(20))
    runner.prefill_step(seqs)
    assert runner._core.drafter is not None
    broken = torch.full_like(runner._core.drafter._owed[seqs[1]], math.nan)
    runner._core.drafter._owed[seqs[1]] = broken
    finish(runner, seqs)
    assert seqs[1].finish == Finish("abort", message=NONFINITE_DRAFT)
    for index in (0, 2):
        assert seqs[index].output_ids == expected[index].output_ids


def test_logprobs_are_the_targets_and_the_same_with_drafts(agreeing: Path) -> None:
    found = []
    for options in (RunnerOptions(), RunnerOptions(mode="mtp", draft_steps=3)):
        runner = Runner.load(agreeing, options)
        (seq,) = start(runner, [[1, 2, 3]], greedy(12, top_logprobs=2))
        results = runner.prefill_step([seq])
        while seq.phase is not Phase.FINISHED:
            results += runner.decode_step([seq])
        entries = [entry for result in results for entry in result.logprobs or ()]
        assert len(entries) == 12
        for token, entry in zip(seq.output_ids, entries, strict=True):
            assert entry.top[0] == (token, entry.logprob)
            assert entry.top[1][1] <= entry.logprob <= 0.0
        found.append(entries)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"draft_steps": 0},
        {"draft_steps": 8},
        {"page_size": 32},
        {"page_size": 100},
        {"prefill_chunk_tokens": 0},
        {"max_running_requests": 0},
        {"max_total_tokens": 10},
        {"device": "tpu"},
        {"threads": 0},
    ],
)
def test_launch_options_that_cannot_work_are_refused(
    changes: dict[str, Any], random_checkpoint: Path
) -> None:
    with pytest.raises(SpecdecError):
        Runner.load(random_checkpoint, RunnerOptions(**changes))


def test_mode_mtp_is_refused_without_a_head(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, random_model(9), with_mtp=False)
    assert Runner.load(folder).info.mode == "target-only"
    with pytest.raises(CheckpointError, match="no MTP head"):
        Runner.load(folder, RunnerOptions(mode="mtp"))


def test_the_facts_about_the_model_add_up(random_checkpoint: Path) -> None:
    info = Runner.load(random_checkpoint, RunnerOptions(mode="mtp", max_total_tokens=200)).info
    assert info.max_total_tokens == 192
    # One full layer and the drafter's, two KV heads of 32 channels, keys and values, FP32.
    assert info.kv_bytes_per_token == 2 * 2 * 32 * 2 * 4
    # Three layers, two buffers: 4 heads of 32 x 32, and 11 rows of 256 + 64 columns.
    assert info.state_bytes_per_slot == 3 * 2 * 4 * (4 * 32 * 32 + 11 * 320)
    assert info.eos_token_ids == frozenset({255})
    assert dataclasses.asdict(info)["dtype"] == "float32"


def test_pages_are_owned_once_and_sequences_keep_to_one_run_when_they_can() -> None:
    pages = Pages(64 * 40, 64)
    held: dict[str, list[int]] = {name: [] for name in "abc"}
    for _ in range(8):
        for name, mine in held.items():
            pages.grow(name, mine, 1, expected_tokens=64 * 8)
            pages.check_integrity()
    assert all(one_run(mine, 8) for mine in held.values())
    assert pages.free_tokens == 64 * 16


def test_the_page_table_survives_any_order_of_growth_and_release() -> None:
    rng = random.Random(3)
    pages = Pages(64 * 30, 64)
    held: dict[int, list[int]] = {}
    for turn in range(800):
        owner = rng.randrange(6)
        mine = held.setdefault(owner, [])
        if rng.random() < 0.15:
            assert sorted(pages.give_back(owner)) == sorted(mine) or not mine
            held[owner] = []
        else:
            count = rng.randrange(1, 5)
            free = pages.free_pages()
            if count > free:
                with pytest.raises(PoolExhausted):
                    pages.grow(owner, mine, count, 64 * rng.randrange(1, 20))
                assert pages.free_pages() == free, turn
            else:
                pages.grow(owner, mine, count, 64 * rng.randrange(1, 20))
        pages.check_integrity()
