"""FP8 keys and values: the format against plain loops, and one answer in every mode."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import agreeing_checkpoint, random_model, save_checkpoint
from draft_checkpoints import agreeing_draft, agreeing_dspark
from driving import ScriptedDrafter, finish, generate, greedy, random_prompts, start
from specdec.contract import RunnerOptions
from specdec.layers.quant import KV_GROUP, expand_heads, quantize_heads
from specdec.request import Phase
from specdec.runner import Runner
from specdec.solo import answer
from specdec.state import Fp8KvState, KvState, logical_state

FP8: dict[str, Any] = {"kv_cache_dtype": "fp8"}
E4M3 = sorted(
    {
        sign * value
        for sign in (-1.0, 1.0)
        for value in (
            *(mantissa * 2.0**-9 for mantissa in range(8)),
            *((1 + m / 8) * 2.0**e for e in range(-6, 9) for m in range(8) if e < 8 or m < 7),
        )
    }
)


def nearest(value: float) -> set[float]:
    """The E4M3 values that are nearest to one within the format's range."""
    best = min(abs(value - e) for e in E4M3)
    return {e for e in E4M3 if abs(value - e) == best}


def test_a_row_is_stored_by_the_formats_definition_one_element_at_a_time() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 2, 128, generator=generator) * torch.tensor([0.01, 30.0]).view(1, 2, 1)
    values, scales = quantize_heads(rows)
    assert (values.dtype, scales.dtype) == (torch.uint8, torch.float16)
    assert scales.shape == (2, 2, 2)
    found = expand_heads(values, scales)
    for r in range(2):
        for h in range(2):
            for g in range(2):
                group = rows[r, h, g * KV_GROUP : (g + 1) * KV_GROUP].tolist()
                scale = float(torch.tensor(max(map(abs, group)) / 448.0).to(torch.float16))
                assert float(scales[r, h, g]) == scale
                for i, x in enumerate(group):
                    stored = float(found[r, h, g * KV_GROUP + i]) / scale
                    wanted = nearest(float(torch.tensor(x) / scale))
                    assert any(math.isclose(stored, w, rel_tol=1e-6) for w in wanted)


@pytest.mark.parametrize("dim", [32, 64, 96, 256])
def test_the_rounding_error_is_a_sixteenth_of_an_element_at_most(dim: int) -> None:
    rows = torch.randn(50, 3, dim, generator=torch.Generator().manual_seed(1)) * 5
    values, scales = quantize_heads(rows)
    assert values.shape == rows.shape
    assert scales.shape == (50, 3, -(-dim // 64))
    error = (expand_heads(values, scales) - rows).abs()
    # Half a step of three mantissa bits, or of the smallest step beside the group's largest.
    bound = (rows.abs() / 16).maximum(scales.float().amax(-1, keepdim=True) * 2.0**-10)
    assert bool((error <= bound * 1.001).all())


def test_zeros_stay_zeros_and_what_is_not_finite_stays_so() -> None:
    assert not expand_heads(*quantize_heads(torch.zeros(1, 1, 64))).any()
    tiny = torch.full((1, 1, 64), 1e-12)
    assert bool(torch.isfinite(expand_heads(*quantize_heads(tiny))).all())
    for bad in (math.nan, math.inf):
        row = torch.ones(1, 1, 128)
        row[0, 0, 3] = bad
        found = expand_heads(*quantize_heads(row))
        assert not torch.isfinite(found[..., :64]).any()
        torch.testing.assert_close(found[..., 64:], torch.ones(1, 1, 64), atol=0, rtol=1e-3)


def test_a_rows_bytes_do_not_depend_on_the_rows_beside_it() -> None:
    rows = torch.randn(300, 2, 96, generator=torch.Generator().manual_seed(2))
    whole = quantize_heads(rows)
    for first, stop in ((0, 1), (7, 9), (100, 233)):
        for part, alone in zip(whole, quantize_heads(rows[first:stop].clone()), strict=True):
            assert torch.equal(part[first:stop], alone)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads of 128 channels: two groups each. Its block drafters lie in it."""
    target = agreeing_checkpoint(tmp_path_factory.mktemp("fp8-kv"), head_dim=128)
    agreeing_draft(target / "dflash2", target)
    agreeing_dspark(target / "dspark", target)
    return target


def in_mode(mode: str, folder: Path) -> dict[str, Any]:
    """Its option, and the draft checkpoint where it has one of its own."""
    draft = {"draft_model": folder / mode} if mode in ("dflash2", "dspark") else {}
    return {"mode": mode, **draft}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return random_prompts(4, [40, 90, 150], 256, 11)


@pytest.fixture(scope="module")
def expected(folder: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Target-only, alone and cold, with FP8 rows."""
    runner = Runner.load(folder, RunnerOptions(**FP8))
    assert runner.info.invariance.prefill_exact
    return [s.output_ids for s in generate(runner, prompts, greedy(20), 1)]


@pytest.mark.parametrize(
    ("options", "batch"),
    [
        ({"prefill_chunk_tokens": 13}, 4),
        ({"mode": "mtp"}, 1),
        ({"mode": "mtp", "draft_steps": 7, "prefill_chunk_tokens": 64}, 4),
        ({"mode": "mtp", "draft_steps": 7, "adaptive": True}, 3),
        ({"mode": "dflash2"}, 4),
        ({"mode": "dspark"}, 4),
    ],
)
def test_drafts_batches_and_chunks_change_nothing_under_fp8_rows(
    options: dict[str, Any],
    batch: int,
    folder: Path,
    prompts: list[list[int]],
    expected: list[list[int]],
) -> None:
    options = {**options, **in_mode(options.get("mode", "target-only"), folder)}
    runner = Runner.load(folder, RunnerOptions(**FP8, **options))
    seqs = generate(runner, prompts, greedy(20), batch)
    assert [s.output_ids for s in seqs] == expected
    if options["mode"] != "target-only":
        assert sum(s.counters.rollbacks for s in seqs) > 0
        assert sum(s.counters.correct_drafts for s in seqs) > 0


@pytest.mark.parametrize("mode", ["target-only", "mtp", "dflash2"])
def test_the_prefix_cache_shares_bytes_and_scales(
    mode: str, folder: Path, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    options = in_mode(mode, folder)
    runner = Runner.load(folder, RunnerOptions(prefix_cache=True, **options, **FP8))
    cold = Runner.load(folder, RunnerOptions(**FP8))
    for prompt, ids in zip(prompts, expected, strict=True):
        for reused in (0, len(prompt) - 1):
            done = answer(runner, "x", prompt, greedy(20)).sequence
            assert (done.output_ids, done.cached_tokens) == (ids, reused)
        longer = [*prompt, *ids, 5, 6, 7]
        again = answer(runner, "y", longer, greedy(8)).sequence
        assert again.cached_tokens == len(prompt) + 19
        assert again.output_ids == answer(cold, "z", longer, greedy(8)).sequence.output_ids
    runner.check_integrity()


def test_random_rejections_and_a_retraction_leave_the_same_bytes(
    folder: Path, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    rng = random.Random(3)
    script: Callable[[], int] = lambda: rng.randrange(4)  # noqa: E731
    states = []
    for drafted in (False, True):
        runner = Runner.load(folder, RunnerOptions(mode="mtp", **FP8))
        (seq,) = start(runner, prompts[:1], greedy(21))
        if drafted:
            known = {seq.request_id: [*expected[0], 0]}
            runner._core.drafter = ScriptedDrafter(known, script)  # type: ignore[assignment]
        while seq.phase is not Phase.FINISHED and len(seq.output_ids) < 12:
            if seq.phase is Phase.PREFILL:
                runner.prefill_step([seq])
            else:
                runner.decode_step([seq])
            if drafted and len(seq.output_ids) > 5 and seq.counters.retractions == 0:
                runner.retract(seq)
                runner.admit(seq)
        assert seq.output_ids == expected[0][: len(seq.output_ids)]
        size, state = runner.info.page_size, runner._core.state
        states.append(logical_state(state, seq.slot or 0, seq.pages, size, len(prompts[0]) + 10))
        assert finish(runner, [seq])[0].output_ids[:20] == expected[0]
    assert states[0].keys() == states[1].keys()
    assert any(name.endswith("key_scales") for name in states[0])
    for name, one in states[0].items():
        assert torch.equal(one, states[1][name]), name


def test_the_target_has_fp8_rows_and_its_drafter_plain_ones(folder: Path) -> None:
    sizes = {"max_total_tokens": 64, "context_length": 64, "max_running_requests": 1}
    runner = Runner.load(folder, RunnerOptions(mode="mtp", **FP8, **sizes))
    state = runner._core.state
    (target,) = (layer for layer in state.layers if isinstance(layer, KvState))
    assert isinstance(target, Fp8KvState)
    assert [type(layer) for layer in state.drafter] == [KvState]
    held = sum(part.nbytes for layer in (target, *state.drafter) for part in layer.parts)
    assert held == 64 * runner.info.kv_bytes_per_token
    heads, dim = 2, 128
    assert held == 64 * 2 * (heads * (dim + 2 * dim // 64) + heads * dim * 4)


def test_fp8_rows_stay_near_plain_ones(tmp_path: Path) -> None:
    from test_specdec_reference import engine_logits

    model = save_checkpoint(tmp_path, random_model(5, head_dim=64), with_mtp=False)
    ids = random_prompts(1, [150], 256, 4)[0]
    plain, fp8 = (engine_logits(model, ids, [150], kv_cache_dtype=k) for k in ("float32", "fp8"))
    assert not torch.equal(plain, fp8)
    assert float((plain - fp8).abs().mean()) < 0.1 * float(plain.abs().mean())
