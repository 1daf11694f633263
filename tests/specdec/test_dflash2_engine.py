"""DFlash2 in the engine: large numbers, broken ones, refusals, and what a ring holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from checkpoints import rewrite
from draft_checkpoints import random_draft
from driving import finish, generate, greedy, random_prompts, start
from specdec.block_backbone import DraftLayer
from specdec.block_drafter import BlockDrafter
from specdec.block_memory import RingRows
from specdec.contract import RunnerOptions
from specdec.errors import RequestRefused
from specdec.request import Finish, Phase, SamplingParams, Sequence
from specdec.runner import Runner

FP16_MAX = 65_504.0


def load(target: Path, folder: Path, **changes: object) -> Runner:
    return Runner.load(
        target,
        RunnerOptions(mode="dflash2", draft_model=folder, **changes),  # type: ignore[arg-type]
    )


def drafter_of(runner: Runner) -> BlockDrafter:
    assert isinstance(runner._core.drafter, BlockDrafter)
    return runner._core.drafter


def test_a_residual_beyond_fp16_is_served_with_finite_drafts(
    random_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The public checkpoint's residual and MLP output leave FP16 in the first layer."""
    folder = random_draft(tmp_path, random_checkpoint)
    name = "layers.0.mlp.down_proj.weight"
    rewrite(folder, "model.safetensors", lambda tensors: tensors[name].mul_(3e5))
    largest: list[float] = []
    call = DraftLayer.__call__

    def spy(self: DraftLayer, *args: object) -> torch.Tensor:
        out = call(self, *args)  # type: ignore[arg-type]
        largest.append(float(out.abs().max()))
        return out

    monkeypatch.setattr(DraftLayer, "__call__", spy)
    prompts = random_prompts(2, (9, 50), 250, seed=1)
    runner = load(random_checkpoint, folder)
    done = generate(runner, prompts, greedy(12), 2)
    assert min(largest) > FP16_MAX  # in both layers, as the residual carries it on
    assert all(seq.finish == Finish("length", length=12) for seq in done)
    assert all(seq.counters.nonfinite_draft_logits == 0 for seq in done)
    assert all(seq.counters.proposed_drafts > 0 for seq in done)


def test_draft_logits_that_are_not_finite_end_their_request_alone(agreeing: Path) -> None:
    runner = load(agreeing, agreeing / "dflash2")
    prompts = random_prompts(3, (20, 40), 250, seed=2)
    plain = generate(Runner.load(agreeing), prompts, greedy(20), 1)
    seqs = start(runner, prompts, greedy(20))
    while any(seq.phase is Phase.PREFILL for seq in seqs):
        runner.prefill_step([seq for seq in seqs if seq.phase is Phase.PREFILL])
    runner.decode_step(seqs)
    broken = drafter_of(runner)._owed[seqs[1]]
    drafter_of(runner)._owed[seqs[1]] = torch.full_like(broken, float("nan"))
    results = runner.decode_step(seqs)
    assert results[1].finish is not None
    assert results[1].finish.message == "The drafter produced logits that are not finite."
    assert seqs[1].counters.nonfinite_draft_logits == 7
    finish(runner, [seqs[0], seqs[2]])
    assert [seqs[i].output_ids for i in (0, 2)] == [plain[i].output_ids for i in (0, 2)]


@pytest.mark.parametrize("top", [0, 3])
def test_returned_log_probabilities_are_refused_before_anything_is_taken(
    top: int, agreeing: Path
) -> None:
    runner = load(agreeing, agreeing / "dflash2")
    with pytest.raises(RequestRefused, match="mode dflash2") as refused:
        runner.new_sequence("r", [1, 2], SamplingParams(max_new_tokens=2, top_logprobs=top))
    assert "another mode" in str(refused.value)
    assert runner.free_slots == runner.info.max_running_requests


def ring_of(runner: Runner) -> RingRows:
    memory = drafter_of(runner)._memory
    assert isinstance(memory, RingRows)
    return memory


def prefilled(runner: Runner, prompt: list[int]) -> Sequence:
    seq = runner.new_sequence("r", prompt, greedy(30))
    runner.admit(seq)
    while seq.phase is Phase.PREFILL:
        runner.prefill_step([seq])
    return seq


@pytest.mark.parametrize("chunk", [16, 100, 500])
def test_a_ring_holds_the_last_positions_whatever_the_chunks(chunk: int, agreeing: Path) -> None:
    """Chunks shorter and longer than the ring's 128 rows; the pool's rows are the reference."""
    prompt = random_prompts(1, (420,), 250, seed=4)[0]
    shared = load(agreeing, agreeing / "dflash2")
    ring = load(agreeing, agreeing / "dflash2", draft_kv="ring", prefill_chunk_tokens=chunk)
    pair = [(runner, prefilled(runner, prompt)) for runner in (shared, ring)]
    for _ in range(4):
        for layer in range(2):
            seen = []
            for runner, seq in pair:
                with torch.inference_mode():
                    drafter_of(runner).prime(seq)
                first = seq.computed - 39  # a window of 40, the row's own position among them
                seen.append(drafter_of(runner)._memory.read(layer, seq, first, seq.computed))
            assert torch.equal(seen[0][0], seen[1][0])
            assert torch.equal(seen[0][1], seen[1][1])
        for runner, seq in pair:
            runner.decode_step([seq])


def test_a_prefix_hit_refills_the_ring_from_the_rows_a_snapshot_kept(agreeing: Path) -> None:
    """No row of the target is computed again for it."""
    prompt = random_prompts(1, (300,), 250, seed=6)[0]
    runner = load(agreeing, agreeing / "dflash2", draft_kv="ring", prefix_cache=True)
    first = prefilled(runner, prompt)
    slot = first.slot
    finish_one(runner, first)
    others = [prefilled(runner, random_prompts(1, (200,), 250, seed=i)[0]) for i in (7, 8)]
    again = prefilled(runner, prompt)
    assert again.cached_tokens == 299
    assert (others[0].slot, again.slot != slot) == (slot, True)  # another has its old ring
    cold = load(agreeing, agreeing / "dflash2", draft_kv="ring")
    fresh = prefilled(cold, prompt)
    rows = [
        ring_of(r).read(1, s, s.computed - 39, s.computed)
        for r, s in ((runner, again), (cold, fresh))
    ]
    assert torch.equal(rows[0][0], rows[1][0])
    assert torch.equal(rows[0][1], rows[1][1])
    for seq in (*others, again):
        runner.release(seq, Finish("abort"))
    runner.check_integrity()


def finish_one(runner: Runner, seq: Sequence) -> None:
    while seq.phase is not Phase.FINISHED:
        runner.decode_step([seq])


def test_a_flush_clears_rings_that_nobody_uses_and_no_other(agreeing: Path) -> None:
    options = {"draft_kv": "ring", "prefix_cache": True, "max_running_requests": 2}
    runner = load(agreeing, agreeing / "dflash2", **options)
    prompts = random_prompts(2, (90,), 250, seed=9)
    plain = generate(Runner.load(agreeing), prompts, greedy(30), 1)
    going, gone = (prefilled(runner, prompt) for prompt in prompts)
    slots = [going.slot, gone.slot]
    finish_one(runner, gone)
    assert gone.output_ids == plain[1].output_ids

    def used(slot: int | None) -> bool:
        assert slot is not None
        keys = ring_of(runner).layers[0].keys[slot * 128 : (slot + 1) * 128]
        return bool((keys != 0).any())

    assert [used(slot) for slot in slots] == [True, True]
    memory = [layer.keys.data_ptr() for layer in ring_of(runner).layers]
    runner.flush_cache()
    assert [used(slot) for slot in slots] == [True, False]
    assert [layer.keys.data_ptr() for layer in ring_of(runner).layers] == memory
    finish_one(runner, going)
    assert going.output_ids == plain[0].output_ids
