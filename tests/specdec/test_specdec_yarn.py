"""YaRN against transformers' own numbers, alone and through the whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import random_model, save_checkpoint, small_config
from driving import finish, generate, greedy, random_prompts, start
from specdec.config import read_config
from specdec.contract import RunnerOptions
from specdec.layers.rope import RopeTable, frequencies
from specdec.runner import Runner
from transformers import Qwen3_5ForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

STRETCHED: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.5,
    "mrope_section": [2, 3, 3],
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"factor": 8.0, "rope_theta": 10_000_000.0, "original_max_position_embeddings": 2048},
    {"factor": 2.5, "truncate": False},
    {"attention_factor": 1.37},
    {"mscale": 0.7, "mscale_all_dim": 1.2},
    {"beta_fast": 8.0, "beta_slow": 2.0},
    {"factor": 1.0},
    {"partial_rotary_factor": 0.25, "mrope_section": [1, 1, 2]},
]


def config_with(folder: Path, **rope: Any) -> Any:
    """transformers' config, saved into ``folder``."""
    config = small_config(rope_parameters={**STRETCHED, **rope}, max_position_embeddings=512)
    config.architectures = ["Qwen3_5ForCausalLM"]
    config.save_pretrained(folder)
    return config


@pytest.mark.parametrize("rope", VARIANTS, ids=[str(v) for v in VARIANTS])
def test_frequencies_and_attention_factor_are_those_of_transformers(
    rope: dict[str, Any], tmp_path: Path
) -> None:
    expected, factor = ROPE_INIT_FUNCTIONS["yarn"](config_with(tmp_path, **rope))
    config = read_config(tmp_path)
    assert config.yarn is not None
    found = frequencies(config.rotary_dim, config.rope_theta, config.yarn)
    torch.testing.assert_close(found, expected, atol=0.0, rtol=1e-6)
    assert config.yarn.attention_factor == pytest.approx(factor)


def test_some_pairs_are_kept_some_slowed_whole_and_some_between(tmp_path: Path) -> None:
    """Otherwise the comparison above would say nothing of the ramp."""
    config_with(tmp_path, factor=8.0, original_max_position_embeddings=2048)
    config = read_config(tmp_path)
    assert config.yarn is not None
    slowed = config.yarn.slowed(config.rotary_dim, config.rope_theta)
    assert slowed[0] == 0.0
    assert slowed[-1] == 1.0
    assert any(0.0 < s < 1.0 for s in slowed)


def test_the_whole_model_agrees_with_transformers_beyond_the_trained_context(
    tmp_path: Path,
) -> None:
    model = random_model(5, rope_parameters=STRETCHED, max_position_embeddings=512)
    folder = save_checkpoint(tmp_path, model, with_mtp=False)
    prompt = random_prompts(1, [300], 256, 4)[0]
    runner = Runner.load(folder, RunnerOptions(max_running_requests=1))
    (seq,) = finish(runner, start(runner, [prompt], greedy(24)))
    theirs = Qwen3_5ForCausalLM.from_pretrained(folder).float().eval()
    ids = torch.tensor([[*prompt, *seq.output_ids]])
    with torch.no_grad():
        logits = theirs(ids).logits[0, len(prompt) - 1 : -1]
    top = logits.topk(2).values
    decided = (top[:, 0] - top[:, 1]) > 1e-3
    assert int(decided.sum()) >= 20
    assert torch.equal(logits.argmax(1)[decided], torch.tensor(seq.output_ids)[decided])


def test_stretching_changes_what_the_model_says(tmp_path: Path) -> None:
    prompt = random_prompts(1, [300], 256, 4)[0]
    outputs = []
    for name, rope in (("plain", {**STRETCHED, "rope_type": "default"}), ("yarn", STRETCHED)):
        model = random_model(5, rope_parameters=rope, max_position_embeddings=512)
        folder = save_checkpoint(tmp_path / name, model, with_mtp=False)
        runner = Runner.load(folder, RunnerOptions(max_running_requests=1))
        (seq,) = finish(runner, start(runner, [prompt], greedy(24)))
        outputs.append(seq.output_ids)
    assert outputs[0] != outputs[1]


def test_the_context_is_as_long_as_the_stretch(tmp_path: Path) -> None:
    """A checkpoint that declares its trained context alone serves factor times as much."""
    config = config_with(tmp_path)
    config.max_position_embeddings = 128
    config.save_pretrained(tmp_path)
    assert read_config(tmp_path).context_length == 512


def test_the_attention_factor_scales_both_tables(tmp_path: Path) -> None:
    config_with(tmp_path, attention_factor=2.0)
    config = read_config(tmp_path)
    table = RopeTable(4, config.rotary_dim, config.rope_theta, torch.device("cpu"), config.yarn)
    assert torch.equal(table.cos[0], torch.full((config.rotary_dim,), 2.0))
    length = table.cos[3] ** 2 + table.sin[3] ** 2
    torch.testing.assert_close(length, torch.full((config.rotary_dim,), 4.0))


def test_drafts_and_batches_change_nothing_under_yarn(tmp_path: Path) -> None:
    model = random_model(5, rope_parameters=STRETCHED, max_position_embeddings=512)
    folder = save_checkpoint(tmp_path, model)
    prompts = random_prompts(3, [140, 200, 90], 256, 6)
    alone = Runner.load(folder, RunnerOptions())
    expected = [s.output_ids for s in generate(alone, prompts, greedy(16), 1)]
    together = Runner.load(folder, RunnerOptions(mode="mtp"))
    assert [s.output_ids for s in generate(together, prompts, greedy(16), 3)] == expected
