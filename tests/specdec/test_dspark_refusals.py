"""What a DSpark checkpoint is refused for: a config that does not fit, a tensor not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from dspark_checkpoints import dspark_config, random_dspark
from safetensors.torch import load_file, save_file
from specdec.contract import RunnerOptions
from specdec.errors import CheckpointError
from specdec.runner import Runner


def load(target: Path, draft: Path, **changes: Any) -> Runner:
    return Runner.load(target, RunnerOptions(mode="dspark", draft_model=draft, **changes))


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"architectures": ["DFlash2DraftModel"]}, {}, "not DSparkDraftModel"),
        ({"architectures": ["DFlashDraftModel"]}, {}, "classic DFlash"),
        ({"block_size": 8}, {}, "verifies at most 7"),
        ({"block_size": None}, {}, "block_size is missing"),
        ({"markov_head_type": "gated"}, {}, "'gated'"),
        ({"markov_rank": None}, {}, "markov_rank is missing"),
        ({"enable_confidence_head": False}, {}, "enable_confidence_head"),
        ({"confidence_head_with_markov": None}, {}, "confidence_head_with_markov"),
        ({"target_layer_ids": [0, 4]}, {}, "target_layer_ids"),
        ({"hidden_size": 32}, {}, "hidden_size is 32"),
        ({"vocab_size": 128}, {}, "vocab_size is 128"),
        ({"mask_token_id": None}, {}, "mask_token_id is missing"),
        ({}, {"draft_steps": 3}, "--draft-steps asks for 3"),
        ({}, {"adaptive": True}, "--draft-adaptive"),
        ({}, {"draft_kv": "ring"}, "--draft-kv"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(
    changes: dict[str, Any], options: dict[str, Any], said: str, agreeing: Path, tmp_path: Path
) -> None:
    random_dspark(tmp_path, agreeing)
    (tmp_path / "config.json").write_text(json.dumps(dspark_config(agreeing, **changes)))
    with pytest.raises(CheckpointError) as refused:
        load(agreeing, tmp_path, **options)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["markov_head.markov_w2.weight", "confidence_head.proj.weight"])
def test_a_missing_or_zero_tensor_is_refused(name: str, agreeing: Path, tmp_path: Path) -> None:
    random_dspark(tmp_path, agreeing)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, name: torch.zeros_like(tensors[name])}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"{name}: all zero"):
        load(agreeing, tmp_path)
    tensors.pop(name)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"{name}: missing"):
        load(agreeing, tmp_path)
