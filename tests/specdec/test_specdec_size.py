"""Memory arithmetic of the 27B shape without a GPU: published byte counts, derived from shapes.

The figures are those that another runtime reported on four GPUs, so none is a copy of a formula.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from checkpoints import quantise, random_model, save_checkpoint
from click.testing import CliRunner
from specdec.cli import main
from specdec.config import read_config
from specdec.contract import RunnerOptions
from specdec.errors import SpecdecError
from specdec.runner import Runner
from specdec.sizing import FP16, FP32, ModelSize, model_size
from specdec.sizing_draft import dflash2_parameters

SHAPES = Path(__file__).with_name("shapes")
TARGET = SHAPES / "qwen3.8-27b-fp8.json"
DRAFT = SHAPES / "qwen3.8-27b-dflash2"
MIB = 1 << 20


@pytest.fixture(scope="module")
def rank() -> ModelSize:
    """One of four ranks in half precision."""
    return model_size(read_config(TARGET), 4, FP16, "plain")


def test_weights_of_a_rank_are_those_that_were_reported(rank: ModelSize) -> None:
    """`resident_weight_bytes` and `resident_scale_bytes` of the runtime's own audit."""
    assert rank.target.weight_bytes == 7_367_270_656
    assert rank.target.scale_bytes == 742_400


def test_the_target_has_as_many_parameters_as_its_name_says(rank: ModelSize) -> None:
    assert 26e9 < rank.target.parameters < 28e9


def test_keys_and_values_of_a_token_and_of_whole_contexts(rank: ModelSize) -> None:
    assert rank.kv_bytes_per_token == 16_384
    reported_mib = {32_768: 512, 65_536: 1_024, 131_072: 2_048, 262_144: 4_096}
    assert {n: rank.kv_bytes(n) / MIB for n in reported_mib} == reported_mib


def test_fp8_keys_and_values_are_half_and_their_scales_eight_mib_at_32k() -> None:
    fp8 = model_size(read_config(TARGET), 4, FP16, "fp8")
    for tokens, values_mib, scales_mib in (
        (32_768, 256, 8),
        (65_536, 512, 16),
        (262_144, 2048, 64),
    ):
        assert fp8.kv_bytes_per_token * tokens == values_mib * MIB
        assert fp8.kv_scale_bytes_per_token * tokens == scales_mib * MIB


def test_snapshots_are_the_reported_totals_over_whole_numbers_of_them(rank: ModelSize) -> None:
    """Bytes after each of four requests of a long conversation."""
    assert rank.snapshot_bytes == 38_486_016
    reported = (885_178_368, 923_664_384, 962_150_400, 654_262_272)
    assert [total % rank.snapshot_bytes for total in reported] == [0] * 4
    assert [total // rank.snapshot_bytes for total in reported] == [23, 24, 25, 17]
    assert 82 * rank.snapshot_bytes / (1 << 30) == pytest.approx(3.0, abs=0.07)


def test_a_dflash2_drafter_is_held_whole_by_every_rank() -> None:
    parameters = dflash2_parameters(DRAFT, read_config(TARGET))
    assert parameters * FP16.dense_bytes == 3_848_808_960


def test_two_ranks_hold_what_was_measured_of_them(rank: ModelSize) -> None:
    """13.72 GiB a rank under two, 6.86 under four."""
    two = model_size(read_config(TARGET), 2, FP16, "plain")
    assert two.target.weight_bytes / (1 << 30) == pytest.approx(13.72, abs=0.01)
    assert rank.target.weight_bytes / (1 << 30) == pytest.approx(6.86, abs=0.01)


def test_ranks_that_cannot_share_evenly_are_refused() -> None:
    with pytest.raises(SpecdecError, match="does not divide"):
        model_size(read_config(TARGET), 3, FP16, "plain")


def test_what_this_engine_holds_is_what_it_says_it_will_hold(tmp_path: Path) -> None:
    """A real checkpoint, loaded: bytes of tensors and state against the arithmetic."""
    save_checkpoint(tmp_path, random_model(7), with_mtp=False)
    quantise(tmp_path)
    size = model_size(read_config(tmp_path), 1, FP32, "plain")
    info = Runner.load(tmp_path, RunnerOptions(max_total_tokens=64, context_length=64)).info
    assert size.target.weight_bytes == info.weight_bytes
    assert 2 * size.target.scale_bytes == info.weight_scale_bytes  # its file has them in FP32
    assert size.target.parameters == info.parameters
    assert size.kv_bytes_per_token == info.kv_bytes_per_token
    assert 2 * size.snapshot_bytes == info.state_bytes_per_slot


def test_the_command_needs_the_config_alone_and_says_the_same() -> None:
    args = ["size", str(TARGET), "--tp", "4", "--draft-model", str(DRAFT)]
    found = CliRunner().invoke(main, [*args, "--json"])
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert (said["weight_bytes"], said["scale_bytes"]) == (7_367_270_656, 742_400)
    assert said["draft_bytes"] == 3_848_808_960
    assert said["kv_bytes"] == 512 * MIB
    parts = [
        said[f"{part}_bytes"]
        for part in ("weight", "scale", "kv", "kv_scale", "snapshots", "draft")
    ]
    assert sum(parts) == said["total_bytes"]
    plain = CliRunner().invoke(main, args).stdout
    assert re.search(r"weights +7,367,270,656 bytes", plain)
    assert re.search(r"draft model, on every rank +3,848,808,960 bytes", plain)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--tp", "7"], "does not divide"),
        (["--draft-model", str(SHAPES.parent)], "cannot be read"),
    ],
)
def test_the_command_refuses_with_a_reason(args: list[str], said: str) -> None:
    found = CliRunner().invoke(main, ["size", str(TARGET), *args])
    assert found.exit_code == 2
    assert said in found.stderr
