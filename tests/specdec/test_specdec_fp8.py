"""FP8 block weights used as they are stored: against plain loops, transformers and themselves."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import agreeing_checkpoint, quantise, random_model, save_checkpoint
from driving import generate, greedy, random_prompts
from safetensors.torch import load_file
from specdec.contract import RunnerOptions
from specdec.layers.fp8 import TILE_ELEMENTS, Fp8Projection, Fp8Weight, joined
from specdec.layers.linear import Products, Projection, SideBySide, projection
from specdec.numerics import fp8_rows_are_independent
from specdec.runner import Runner
from specdec.solo import answer
from test_specdec_reference import engine_logits
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from transformers import Qwen3_5ForCausalLM

TILES = (0, 8)


def weight_of(rows: int, columns: int, side: int = 16, seed: int = 0) -> Fp8Weight:
    generator = torch.Generator().manual_seed(seed)
    values = (torch.randn(rows, columns, generator=generator) * 30).to(torch.float8_e4m3fn)
    blocks = (-(-rows // side), -(-columns // side))
    return Fp8Weight.stored(values, torch.rand(blocks, generator=generator) + 0.5, (side, side))


def plain_element(weight: Fp8Weight, side: int, row: int, column: int) -> float:
    """By the definition of the format: the value times the scale of the block that it lies in."""
    return float(weight.values[row, column].float() * weight.scales[row // side, column // side])


def test_every_byte_stands_for_the_value_that_the_format_says() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    finite = every[torch.isfinite(every.float())]
    weight = Fp8Weight.stored(finite.unsqueeze(0), torch.tensor([[0.37]]), (128, 512))
    assert len(finite) == 254
    assert torch.equal(weight.expanded(0, 1)[0], finite.float() * 0.37)


@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (33, 48), (20, 37)])
def test_expanded_rows_are_values_times_their_blocks_scale_at_ragged_edges_too(
    rows: int, columns: int
) -> None:
    weight = weight_of(rows, columns)
    for first, stop in ((0, rows), (3, rows - 1), (rows - 1, rows)):
        found = weight.expanded(first, stop)
        for row in range(first, stop):
            for column in range(columns):
                expected = plain_element(weight, 16, row, column)
                assert float(found[row - first, column]) == expected


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("rows", [1, 3, 8, 11])
def test_a_projection_is_the_plain_sum_over_columns(rows: int, tile: int) -> None:
    weight = weight_of(21, 37)
    x = torch.randn(rows, 37, generator=torch.Generator().manual_seed(3))
    found = Fp8Projection(weight, tile)(x)
    for i in range(rows):
        for o in range(21):
            total = sum(float(x[i, k]) * plain_element(weight, 16, o, k) for k in range(37))
            assert float(found[i, o]) == pytest.approx(total, abs=1e-2, rel=1e-4)


def test_a_projection_of_many_tiles_is_that_of_the_whole() -> None:
    columns = 2048
    weight = weight_of(2 * (TILE_ELEMENTS // columns) + 5, columns, side=128)
    x = torch.randn(9, columns, generator=torch.Generator().manual_seed(4))
    expected = x.double() @ weight.expanded(0, weight.shape[0]).double().t()
    for tile in TILES:
        found = Fp8Projection(weight, tile)(x)
        torch.testing.assert_close(found.double(), expected, atol=2e-2, rtol=1e-4)


def test_rows_taken_in_any_order_and_joined_keep_their_own_scales() -> None:
    one, other = weight_of(40, 32), weight_of(24, 32, seed=1)
    order = torch.tensor([39, 0, 17, 16, 15, 38])
    whole = joined([one.rows(order), other])
    assert torch.equal(whole.expanded(0, 6), one.expanded(0, 40)[order])
    assert torch.equal(whole.expanded(6, 30), other.expanded(0, 24))
    assert whole.values.dtype == torch.float8_e4m3fn
    assert torch.equal(one.padded(3).expanded(0, 43)[:40], one.expanded(0, 40))
    assert not one.padded(3).expanded(40, 43).any()
    assert one.rows(torch.arange(16)).scales.shape == (1, 2)  # no more scales than rows use


@pytest.mark.parametrize("tile", TILES)
def test_a_rows_bits_do_not_depend_on_how_many_travel_with_it(tile: int) -> None:
    weight = weight_of(300, 192, side=128)
    x = torch.randn(130, 192, generator=torch.Generator().manual_seed(5))
    if tile == 0 and not fp8_rows_are_independent(weight):
        pytest.skip("this machine's product needs tiles, and gets them")
    project = Fp8Projection(weight, tile)
    whole = project(x)
    for rows in (1, 2, 7, 8, 9, 64):
        assert torch.equal(project(x[-rows:].clone()), whole[-rows:])


def test_parts_of_both_formats_stand_side_by_side_in_order() -> None:
    stored, dense = weight_of(8, 32), torch.randn(5, 32)
    made = projection([dense, stored, stored, dense], Products("onednn", 0))
    assert isinstance(made, SideBySide)
    x = torch.randn(3, 32)
    whole = stored.expanded(0, 8)
    expected = x @ torch.cat((dense, whole, whole, dense)).t()
    torch.testing.assert_close(made(x), expected, atol=1e-2, rtol=1e-4)
    assert isinstance(projection([dense, dense], Products("onednn", 0)), Projection)
    assert isinstance(projection([stored, stored], Products("onednn", 0)), Fp8Projection)


def fp8_checkpoint(folder: Path) -> tuple[Path, Path]:
    """(one in FP8 blocks, one in FP32 of what it stands for). Blocks of 48 fall on no edge."""
    model = random_model(7, hidden_size=192, intermediate_size=160)
    stored = save_checkpoint(folder / "stored", model)
    stands_for = quantise(stored, side=48)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in stands_for:
                parameter.copy_(stands_for[name])
    return stored, save_checkpoint(folder / "plain", model)


def test_the_whole_model_agrees_with_transformers_on_what_the_bytes_stand_for(
    tmp_path: Path,
) -> None:
    stored, plain = fp8_checkpoint(tmp_path)
    ids = torch.randint(0, 256, (1, 120), generator=torch.Generator().manual_seed(1))
    model = Qwen3_5ForCausalLM.from_pretrained(plain).float().eval()
    with torch.no_grad():
        expected = model(ids).logits[0]
    assert float(expected.abs().max()) > 3.0
    for kept in ("stored", "expanded"):
        found = engine_logits(stored, ids[0].tolist(), [120], fp8_weights=kept)
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=0.0)


def test_drafts_batches_and_chunks_change_nothing_with_fp8_weights(tmp_path: Path) -> None:
    folder = agreeing_checkpoint(tmp_path / "model")
    quantise(folder, side=48)
    prompts = random_prompts(4, [30, 75, 140], 256, 9)
    alone = Runner.load(folder, RunnerOptions())
    assert alone.info.invariance.prefill_exact
    expected = [s.output_ids for s in generate(alone, prompts, greedy(20), 1)]
    for options in (
        RunnerOptions(mode="mtp"),
        RunnerOptions(mode="mtp", draft_steps=7, prefill_chunk_tokens=13),
    ):
        runner = Runner.load(folder, options)
        assert [s.output_ids for s in generate(runner, prompts, greedy(20), 4)] == expected
    cached = Runner.load(folder, RunnerOptions(mode="mtp", prefix_cache=True))
    for prompt, ids in zip(prompts, expected, strict=True):
        for reused in (0, len(prompt) - 1):
            done = answer(cached, "x", prompt, greedy(20)).sequence
            assert (done.output_ids, done.cached_tokens) == (ids, reused)


def wide_checkpoint(folder: Path) -> int:
    """Some megabytes of FP8 weights; returns their bytes."""
    layers = ["linear_attention", "full_attention"]
    shapes = {"hidden_size": 768, "intermediate_size": 1536, "num_hidden_layers": 2}
    save_checkpoint(folder, random_model(1, layer_types=layers, **shapes), with_mtp=False)
    quantise(folder)
    tensors = load_file(folder / "model.safetensors")
    return sum(t.nbytes for t in tensors.values() if t.dtype == torch.float8_e4m3fn)


def held_by_tensors() -> int:
    """Bytes of every storage that some tensor of this process holds."""
    gc.collect()
    sizes: dict[int, int] = {}
    for thing in gc.get_objects():
        if type(thing) is Tensor and thing.layout is torch.strided:
            storage = thing.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def test_no_full_size_copy_is_held_after_loading(tmp_path: Path) -> None:
    stored = wide_checkpoint(tmp_path)
    options = {"max_running_requests": 1, "max_total_tokens": 64, "context_length": 64}
    before = held_by_tensors()
    runner = Runner.load(tmp_path, RunnerOptions(**options))
    info = runner.info
    state = info.state_bytes_per_slot + 64 * info.kv_bytes_per_token
    grown = held_by_tensors() - before
    dense = info.weight_bytes - stored
    assert info.weight_bytes + info.weight_scale_bytes > stored
    # The dense tensors, possibly packed once more, the state, and small tables.
    assert grown < stored + 2 * dense + state + (1 << 20)
    assert grown < 2 * stored


class Watch(TorchDispatchMode):
    """Bytes of tensors that operations made and that are still there, and the most of them."""

    def __init__(self) -> None:
        super().__init__()
        self._users: dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._see, made)
        return made

    def _see(self, tensor: Tensor) -> None:
        if tensor.layout is not torch.strided:
            return
        where, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        self._users[where] = self._users.get(where, 0) + 1
        if self._users[where] == 1:
            self.now += size
            self.peak = max(self.peak, self.now)
        weakref.finalize(tensor, self._gone, where, size)

    def _gone(self, where: int, size: int) -> None:
        self._users[where] -= 1
        if self._users[where] == 0:
            self.now -= size


def peak_of_loading_and_decoding(folder: Path, kept: str) -> int:
    """What is read from the file is mapped and does not count; what is made of it does."""
    settings = {"max_running_requests": 1, "max_total_tokens": 64, "context_length": 64}
    with Watch() as watch:
        runner = Runner.load(folder, RunnerOptions(fp8_weights=kept, **settings))
        answer(runner, "x", [1, 2, 3], greedy(8))
    return watch.peak


def test_the_peak_of_loading_and_decoding_stays_below_a_full_size_copy(tmp_path: Path) -> None:
    """A weight that is fused is copied in bytes; expanding takes four for each of them."""
    stored = wide_checkpoint(tmp_path)
    assert peak_of_loading_and_decoding(tmp_path, "stored") < 3.5 * stored
    assert peak_of_loading_and_decoding(tmp_path, "expanded") > 4 * stored
