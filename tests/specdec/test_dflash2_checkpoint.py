"""Which draft checkpoints are served, and why the others are refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import edit_config, rewrite
from draft_checkpoints import draft_config, draft_shapes, random_draft
from specdec.block_memory import ring_stride
from specdec.config import read_config
from specdec.contract import RunnerOptions
from specdec.dflash2 import dflash2_tensors, read_dflash2_config
from specdec.draft_config import DraftTree
from specdec.drafter import TargetSide
from specdec.errors import CheckpointError, SpecdecError
from specdec.runner import Runner

PUBLIC: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"], "model_type": "qwen3", "hidden_size": 5120,
    "intermediate_size": 17408, "num_hidden_layers": 5, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 248320, "num_target_layers": 64,
    "sliding_window": 2048, "layer_types": ["sliding_attention"] * 5, "is_causal": False,
    "attention_bias": False, "rms_norm_eps": 1e-6, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_theta": 1e7, "rope_type": "default"},
    "dflash_config": {
        "block_size": 8, "conv_group_size": 16, "conv_kernel_size": 2, "mask_token_id": 248070,
        "selector_rank": 256, "selector_top_k": 16, "target_layer_ids": [5, 19, 33, 47, 61],
    },
}  # fmt: skip
OWN = ["attention_conv", "mlp_conv", "candidate_selector"]


def load(target: Path, folder: Path, **changes: Any) -> Runner:
    return Runner.load(target, RunnerOptions(mode="dflash2", draft_model=folder, **changes))


def side(target: Path, folder: Path, positions: int, **changes: Any) -> TargetSide:
    """A target of which only the shapes matter."""
    config = dataclasses.replace(read_config(target), **changes)
    options = RunnerOptions(mode="dflash2", draft_model=folder)
    nothing: Any = None
    return TargetSide(config, nothing, nothing, torch.device("cpu"), options, positions)


def test_the_public_checkpoint_has_81_tensors_of_which_23_are_dflash2s(
    random_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLIC))
    tree = DraftTree(tmp_path, "DFlash2DraftModel")
    shapes = {
        "vocab_size": 248320, "hidden_size": 5120, "rope_theta": 1e7,
        "layer_types": ("linear_attention",) * 64,
    }  # fmt: skip
    config = read_dflash2_config(tree, side(random_checkpoint, tmp_path, 262144, **shapes))
    tree.finish()
    tensors = {one.name: one.shape for one in dflash2_tensors(config)}
    assert tensors == draft_shapes(PUBLIC)
    assert len(tensors) == 81
    assert sum(any(part in name for part in OWN) for name in tensors) == 23
    assert tensors["layers.0.attention_conv.base_kernel"] == (2, 2, 5120)
    assert tensors["layers.0.attention_conv.kernel_projection.weight"] == (1280, 5120)
    elements = sum(torch.Size(shape).numel() for shape in tensors.values())
    assert 2 * elements == 3_848_808_960  # BF16, whole on every rank


def test_a_ring_has_a_window_a_block_and_a_page_to_spare(agreeing: Path) -> None:
    assert ring_stride(2048, 8, 64) == 2176
    assert 8 * ring_stride(2048, 8, 64) == 17_408
    runner = load(agreeing, agreeing / "dflash2", draft_kv="ring", max_running_requests=3)
    facts = runner.info.draft
    assert facts is not None
    assert facts.window == 40
    assert facts.own_rows == 3 * (64 + 64)
    # Two layers of two heads of 16 channels, keys and values, and a feature row of 64; FP32.
    assert facts.own_bytes == facts.own_rows * 4 * (2 * 2 * 2 * 16 + 64)
    assert runner._core.state.drafter == []


def test_a_ring_takes_nothing_from_the_pool_whatever_its_size(agreeing: Path) -> None:
    small, large = (
        load(agreeing, agreeing / "dflash2", draft_kv="ring", max_total_tokens=tokens)
        for tokens in (512, 4096)
    )
    shared = load(agreeing, agreeing / "dflash2", max_total_tokens=512)
    assert small.info.draft is not None
    assert large.info.draft is not None
    assert small.info.draft.own_rows == large.info.draft.own_rows
    assert small.info.kv_bytes_per_token == Runner.load(agreeing).info.kv_bytes_per_token
    layers = 2 * 2 * 2 * 16 * 4
    assert shared.info.kv_bytes_per_token == small.info.kv_bytes_per_token + layers


def test_what_was_loaded_is_known_by_its_class(agreeing: Path) -> None:
    facts = load(agreeing, agreeing / "dflash2").info.draft
    assert facts is not None
    assert (facts.name, facts.block_size, facts.most) == ("DFlash2DraftModel", 8, 7)
    assert (facts.taps, facts.mask_token, facts.window) == ((0, 2, 3), 250, 40)
    assert facts.tensors == 3 + 2 * 15 + 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": ["DFlashDraftModel"]}, "classic DFlash"),
        ({"architectures": ["DSparkDraftModel"]}, "not DFlash2DraftModel"),
        ({"block_size": 1}, "block_size is 1"),
        ({"block_size": 16}, "verifies at most 7"),
        ({"block_size": None}, "block_size is missing"),
        ({"target_layer_ids": [0, 4]}, "target_layer_ids"),
        ({"target_layer_ids": [0, 0]}, "target_layer_ids"),
        ({"target_layer_ids": None}, "target_layer_ids"),
        ({"num_target_layers": 5}, "num_target_layers is 5"),
        ({"hidden_size": 80}, "hidden_size is 80, the target's is 64"),
        ({"vocab_size": 260}, "vocab_size is 260"),
        ({"sliding_window": None}, "sliding_window is missing"),
        ({"sliding_window": 4}, "less than a block"),
        ({"layer_types": ["full_attention"] * 2}, "sliding_window is missing"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "layer_types"),
        ({"mask_token_id": 256}, "beyond the vocabulary"),
        ({"selector_top_k": 257}, "beyond the vocabulary"),
        ({"selector_rank": 0}, "selector_rank is 0"),
        ({"conv_group_size": 48}, "does not divide"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "rotary positions"),
        (
            {
                "rope_parameters": {
                    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                    "original_max_position_embeddings": 512,
                }
            },
            "yarn with base 10000, factor 4 over 512, the target's are plain",
        ),
        ({"max_position_embeddings": 1024}, "positions end at 1024"),
        ({"attention_bias": True}, "attention_bias"),
    ],
)  # fmt: skip
def test_a_tree_that_does_not_fit_its_target_is_refused(
    changes: dict[str, Any], said: str, random_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(draft_config(random_checkpoint, **changes)))
    with pytest.raises(CheckpointError, match=said) as refused:
        load(random_checkpoint, tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_a_target_with_yarn_needs_a_drafter_with_the_same(
    random_checkpoint: Path, tmp_path: Path
) -> None:
    import shutil

    target = tmp_path / "target"
    shutil.copytree(random_checkpoint, target)
    rope = json.loads((target / "config.json").read_text())["rope_parameters"]
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024}
    edit_config(target, rope_parameters={**rope, **yarn})
    plain = random_draft(tmp_path / "plain", target)
    with pytest.raises(CheckpointError, match="plain with base 10000, the target's are yarn"):
        load(target, plain)
    fitting = random_draft(
        tmp_path / "yarn", target, rope_parameters={**yarn, "rope_theta": 10_000.0}
    )
    assert load(target, fitting).info.draft is not None


def test_every_tensor_must_be_there_and_be_trained(random_checkpoint: Path, tmp_path: Path) -> None:
    folder = random_draft(tmp_path, random_checkpoint)
    names = draft_shapes(draft_config(random_checkpoint))

    def refused(change: Callable[[dict[str, torch.Tensor]], object]) -> str:
        random_draft(folder, random_checkpoint)
        rewrite(folder, "model.safetensors", change)
        with pytest.raises(CheckpointError) as error:
            load(random_checkpoint, folder)
        return str(error.value)

    def emptied(tensors: dict[str, torch.Tensor]) -> None:
        for tensor in tensors.values():
            tensor.zero_()

    said = refused(emptied)
    assert all(f"{name}: all zero" in said for name in names)

    def cut(tensors: dict[str, torch.Tensor]) -> None:
        for name in names:
            if any(part in name for part in OWN):
                del tensors[name]

    said = refused(cut)
    assert said.count(": missing") == 2 * 4 + 3

    def broken(tensors: dict[str, torch.Tensor]) -> None:
        tensors["norm.weight"][3] = float("nan")
        tensors["fc.weight"] = tensors["fc.weight"][:, :-1].contiguous()
        tensors["layers.0.mlp_conv.base_kernel"] = tensors["layers.0.mlp_conv.base_kernel"].int()
        tensors["embed_tokens.weight"] = torch.ones(3, 3)

    said = refused(broken)
    for fault in ("norm.weight: holds values", "fc.weight: expected", "base_kernel: expected",
                  "embed_tokens.weight: unexpected"):  # fmt: skip
        assert fault in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "dflash2"}, "needs a draft checkpoint"),
        ({"mode": "dspark"}, "needs a draft checkpoint"),
        ({"mode": "mtp", "draft_model": Path("d")}, "takes no --draft-model"),
        ({"draft_model": Path("d")}, "takes no --draft-model"),
    ],
)
def test_a_mode_without_its_draft_model_and_one_that_takes_none_are_refused(
    options: dict[str, Any], said: str, random_checkpoint: Path
) -> None:
    with pytest.raises(SpecdecError, match=said):
        Runner.load(random_checkpoint, RunnerOptions(**options))


def test_more_drafts_than_a_block_gives_are_refused(agreeing: Path, tmp_path: Path) -> None:
    folder = random_draft(tmp_path, agreeing, block_size=4)
    assert load(agreeing, folder, draft_steps=2).info.draft_steps == 2
    assert load(agreeing, folder).info.draft_steps == 3
    with pytest.raises(CheckpointError, match="a block of 4 gives 3 drafts"):
        load(agreeing, folder, draft_steps=4)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_folder_that_is_no_checkpoint_is_refused(
    content: str | None, random_checkpoint: Path, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load(random_checkpoint, tmp_path)
