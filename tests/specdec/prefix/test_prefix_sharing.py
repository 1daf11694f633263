"""What is shared, kept, evicted and forgotten, and when."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import random_model, rewrite, save_checkpoint
from driving import generate, greedy
from prefix_driving import MODES, advance, assert_empty, begin, finish, load, options, run
from specdec.assemble import assemble
from specdec.contract import RunnerOptions
from specdec.errors import SpecdecError
from specdec.request import Finish, Phase
from specdec.runner import Runner


def tokens(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(255) for _ in range(count)]


def cold_ids(folder: Path, prompt: list[int], new_tokens: int) -> list[int]:
    (seq,) = generate(Runner.load(folder), [prompt], greedy(new_tokens), 1)
    return seq.output_ids


@pytest.mark.parametrize("mode", MODES)
def test_a_running_prompt_is_shared_page_by_page(mode: str, agreeing: Path) -> None:
    runner = load(agreeing, mode)
    prompt = tokens(600, 1)
    first = begin(runner, prompt, 6)
    while first.phase is Phase.PREFILL:
        runner.prefill_step([first])
    second = begin(runner, [*prompt[:590], 3], 6)
    assert second.cached_tokens == 512
    shared = second.cached_tokens // 64
    assert second.pages[:shared] == first.pages[:shared]
    assert not set(second.pages[shared:]) & set(first.pages)
    finish(runner, [first, second])
    assert first.output_ids == cold_ids(agreeing, prompt, 6)
    assert second.output_ids == cold_ids(agreeing, [*prompt[:590], 3], 6)


def test_two_who_computed_the_same_leave_it_once(agreeing: Path) -> None:
    runner = load(agreeing, "mtp-fixed")
    prompt = tokens(300, 2)
    seqs = finish(runner, [begin(runner, prompt, 8, str(i)) for i in range(3)])
    assert len({tuple(seq.output_ids) for seq in seqs}) == 1
    assert runner.cache_size.pages == -(-(300 + 8 - 1) // 64)


@pytest.mark.parametrize("mode", MODES)
def test_an_appended_request_keeps_its_pages_in_one_run(mode: str, agreeing: Path) -> None:
    runner = load(agreeing, mode)
    before = run(runner, tokens(300, 3), 10)
    seq = begin(runner, [*before.all_tokens(), *tokens(200, 4)], 10)
    assert seq.cached_tokens == 309
    assert seq.pages == list(range(seq.pages[0], seq.pages[0] + len(seq.pages)))
    finish(runner, [seq])


def test_a_full_pool_evicts_before_it_retracts(agreeing: Path) -> None:
    runner = load(agreeing, "mtp-fixed", max_total_tokens=512)
    run(runner, tokens(250, 5), 20)
    assert runner.pool.free_tokens == 512 - 320
    assert (runner.pool.used_tokens, runner.pool.evictable_tokens) == (0, 320)
    seq = begin(runner, tokens(300, 6), 150)
    assert runner.pool.evictable_tokens < 320
    while seq.phase is not Phase.FINISHED:
        if seq.phase is Phase.DECODE:
            assert runner.pages_short([seq]) == 0
        advance(runner, [seq])
    assert runner.cache_size.evicted_tokens > 0
    assert seq.output_ids == cold_ids(agreeing, tokens(300, 6), 150)


def test_the_least_recently_used_goes_first(agreeing: Path) -> None:
    runner = load(agreeing, "target-only", max_total_tokens=512)
    old, new = tokens(150, 7), tokens(150, 8)
    for prompt in (old, new, old):
        run(runner, prompt, 2)
    run(runner, tokens(150, 9), 2)  # needs a page more than are free
    assert run(runner, old, 2).cached_tokens == 149
    assert run(runner, new, 2).cached_tokens < 149


def test_a_request_of_the_whole_pool_is_admitted_beside_its_own_prefix(agreeing: Path) -> None:
    """The copied page needs room of its own; where there is none, the request starts cold."""
    runner = load(agreeing, "mtp-fixed", max_total_tokens=256)
    prompt = tokens(200, 10)
    run(runner, prompt, 30)
    seq = begin(runner, prompt, 56)
    finish(runner, [seq])
    assert seq.output_ids == cold_ids(agreeing, prompt, 56)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_what_an_aborted_request_computed_is_reused(steps: int, mode: str, agreeing: Path) -> None:
    runner = load(agreeing, mode, prefill_chunk_tokens=100)
    prompt = tokens(250, 11)
    seq = begin(runner, prompt, 30)
    for _ in range(steps):
        advance(runner, [seq])
    computed = seq.computed
    runner.release(seq, Finish("abort"))
    runner.check_integrity()
    again = run(runner, prompt, 30)
    assert again.cached_tokens == min(computed, len(prompt) - 1)
    assert again.output_ids == cold_ids(agreeing, prompt, 30)


@pytest.mark.parametrize("mode", MODES)
def test_a_retracted_request_goes_on_from_what_it_left(mode: str, agreeing: Path) -> None:
    runner = load(agreeing, mode)
    prompt = tokens(130, 12)
    seq = begin(runner, prompt, 40)
    for turn in range(200):
        advance(runner, [seq])
        if seq.phase is Phase.FINISHED:
            break
        if turn % 3 == 2:
            before = seq.computed
            runner.retract(seq)
            runner.check_integrity()
            runner.admit(seq)
            assert before - 1 <= seq.resumed_at <= before
            assert seq.cached_tokens == 0  # all of the prompt was computed once, for it
    assert seq.counters.retractions > 1
    assert seq.output_ids == cold_ids(agreeing, prompt, 40)


def test_tenants_share_nothing(agreeing: Path) -> None:
    runner = load(agreeing, "mtp-fixed")
    prompt = tokens(200, 13)
    reused = []
    for key in (None, ("a", ""), ("", "a"), None, ("a", "")):
        seq = runner.new_sequence("r", prompt, greedy(4), key)
        runner.admit(seq)
        finish(runner, [seq])
        reused.append(seq.cached_tokens)
    assert reused == [0, 0, 0, 199, 199]
    runner.flush_cache()
    assert_empty(runner)


def test_snapshots_keep_within_their_number_and_their_bytes(agreeing: Path) -> None:
    one = load(agreeing, "mtp-fixed")
    run(one, tokens(20, 14), 1)
    size = one.cache_size.snapshot_bytes // one.cache_size.snapshots
    for limits in ({"max_snapshots": 3}, {"max_snapshot_bytes": 3 * size + 1000}):
        runner = load(agreeing, "mtp-fixed", **limits)
        prompt = tokens(1100, 15)
        run(runner, prompt, 4)
        assert runner.cache_size.snapshots == 3
        assert run(runner, prompt, 4).cached_tokens == 1099
    tiny = load(agreeing, "mtp-fixed", max_snapshot_bytes=10)
    run(tiny, tokens(300, 14), 4)
    assert run(tiny, tokens(300, 14), 4).cached_tokens == 0
    assert tiny.cache_size.snapshots == 0


@pytest.mark.parametrize("interval", [0, 512])
def test_late_snapshots_come_at_the_interval(interval: int, tmp_path: Path) -> None:
    from checkpoints import agreeing_checkpoint

    folder = agreeing_checkpoint(tmp_path, max_position_embeddings=8192)
    settings = {"snapshot_interval": interval, "max_running_requests": 1}
    runner = load(folder, "target-only", **settings)
    prompt = tokens(5300, 16)
    run(runner, prompt, 1)
    seq = begin(runner, [*prompt[:5000], 1, 2, 3], 1)
    assert seq.cached_tokens == (4608 if interval else 4096)


def test_generate_flush_generate_works_for_ever(agreeing: Path) -> None:
    runner = load(agreeing, "mtp-fixed")
    prompt = tokens(300, 17)
    outputs = set()
    for _ in range(4):
        first, second = run(runner, prompt, 6), run(runner, prompt, 6)
        assert (first.cached_tokens, second.cached_tokens) == (0, 299)
        outputs |= {tuple(first.output_ids), tuple(second.output_ids)}
        runner.flush_cache()
        assert_empty(runner)
    assert len(outputs) == 1


@pytest.mark.parametrize("shard", ["model.safetensors", "mtp.safetensors"])
def test_a_request_whose_logits_are_not_finite_leaves_nothing(shard: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, random_model(9))
    layer = "model.layers.3" if shard.startswith("model") else "mtp.layers.0"
    name = f"{layer}.mlp.down_proj.weight"
    rewrite(tmp_path, shard, lambda tensors: tensors[name].fill_(3e38))
    runner = load(tmp_path, "mtp-fixed", prefill_chunk_tokens=64)
    for _ in range(2):
        seq = run(runner, tokens(150, 18), 5)
        assert seq.finish is not None
        assert seq.finish.kind == "abort"
    if shard.startswith("model"):
        assert_empty(runner)
    for layer_state in (*runner._core.state.layers, *runner._core.state.drafter):
        for tensor in vars(layer_state).values():
            assert bool(torch.isfinite(tensor).all()) or shard.startswith("model")


@pytest.mark.parametrize("mode", MODES)
def test_without_exact_prefill_only_prefilled_rows_are_reused_at_block_edges(
    mode: str, agreeing: Path
) -> None:
    chosen = options(agreeing, mode, prefill_chunk_tokens=100)
    parts = assemble(agreeing, chosen)
    invariance = dataclasses.replace(parts.info.invariance, prefill_exact=False, prefill_rows=8)
    info = dataclasses.replace(parts.info, invariance=invariance)
    runner = Runner(dataclasses.replace(parts, info=info), chosen)
    prompt = tokens(333, 19)
    before = run(runner, prompt, 20)
    for new, reused in (
        (prompt, 328),
        ([*before.all_tokens(), 5], 328),
        (prompt[:330], 328),
        (prompt[:300], 256),
        ([*prompt[:320], *tokens(50, 20)], 296),  # the one before left its last block
    ):
        seq = run(runner, new, 20)
        assert seq.cached_tokens == reused
        assert seq.output_ids == cold_ids(agreeing, new, 20)
    runner.flush_cache()
    assert_empty(runner)


@pytest.mark.parametrize(
    "changes",
    [{"snapshot_interval": -8}, {"snapshot_interval": 100}, {"max_snapshots": 0},
     {"max_snapshot_bytes": 0}],
)  # fmt: skip
def test_limits_that_cannot_work_are_refused(changes: dict[str, Any], agreeing: Path) -> None:
    with pytest.raises(SpecdecError, match="--"):
        Runner.load(agreeing, RunnerOptions(prefix_cache=True, **changes))
