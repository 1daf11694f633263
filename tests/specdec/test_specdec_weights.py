"""A checkpoint with a fault is refused and the tensor named; a sound one loads in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoints import edit_config, quantise, random_model, rewrite, save_checkpoint
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from specdec.cli import main
from specdec.errors import CheckpointError
from specdec.layers.fp8 import Fp8Weight
from specdec.weights import audit, load_checkpoint
from torch import Tensor

Tensors = dict[str, Tensor]
Q_PROJ = "mtp.layers.0.self_attn.q_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "model", random_model(2))


def problems(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert audit(folder).problems == caught.value.problems
    return "\n".join(caught.value.problems)


def put(name: str, value: Tensor) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: value})


FAULTS: list[tuple[str, Callable[[Tensors], object], str]] = [
    ("missing", lambda t: t.pop(Q_PROJ), f"{Q_PROJ}: missing"),
    ("unexpected", put("mtp.extra.weight", torch.ones(2)), "mtp.extra.weight: unexpected"),
    ("misshapen", put("mtp.fc.weight", torch.ones(64, 64)), "mtp.fc.weight: expected shape"),
    ("all zero", lambda t: t["mtp.fc.weight"].zero_(), "mtp.fc.weight: all zero"),
    ("not finite", lambda t: t[Q_PROJ].fill_(float("nan")), f"{Q_PROJ}: holds values"),
    ("integers", put(Q_PROJ, torch.ones(256, 64, dtype=torch.int32)), f"{Q_PROJ}: expected shape"),
    # F062: a quantised drafter, two values packed into each byte of half the width
    ("packed", put(Q_PROJ, torch.ones(256, 32, dtype=torch.uint8)),
     "expected shape [256, 64] in BF16, F16, F32 or F8_E4M3, found shape [256, 32] in U8"),
    ("a format nobody declared", lambda t: t.update({Q_PROJ: t[Q_PROJ].to(torch.float8_e4m3fn)}),
     f"{Q_PROJ}: found F8_E4M3"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "change", "sentence"), FAULTS, ids=[f[0] for f in FAULTS])
def test_f061_f062_a_faulty_draft_tensor_stops_the_load_and_is_named(
    kind: str, change: Callable[[Tensors], object], sentence: str, folder: Path
) -> None:
    """F061: dropped or dead draft weights leave the output right and only kill the acceptance."""
    rewrite(folder, "mtp.safetensors", change)
    found = problems(folder)
    assert sentence in found
    assert len(found.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.layers.0.linear_attn.A_log", "[4]"),
        ("model.layers.1.linear_attn.in_proj_qkv.weight", "[256, 64]"),
        ("model.layers.3.self_attn.k_norm.weight", "[32]"),
        ("model.embed_tokens.weight", "[256, 64]"),
        ("lm_head.weight", "[256, 64]"),
    ],
)
def test_a_missing_target_tensor_is_named_with_the_shape_it_should_have(
    name: str, shape: str, folder: Path
) -> None:
    rewrite(folder, "model.safetensors", lambda tensors: tensors.pop(name))
    assert f"{name.removeprefix('model.')}: missing, expected shape {shape}" in problems(folder)


def test_every_fault_is_reported_at_once(folder: Path) -> None:
    def spoil(tensors: Tensors) -> None:
        tensors.pop("mtp.norm.weight")
        tensors["mtp.fc.weight"].zero_()
        tensors["stray"] = torch.ones(1)

    rewrite(folder, "mtp.safetensors", spoil)
    assert len(problems(folder).splitlines()) == 3


def test_an_offset_from_one_may_be_all_zero(folder: Path) -> None:
    rewrite(folder, "mtp.safetensors", lambda t: t["mtp.norm.weight"].zero_())
    assert audit(folder).ok


def test_draft_tensors_without_a_declared_head_are_unexpected(folder: Path) -> None:
    edit_config(folder, mtp_num_hidden_layers=0)
    assert f"{Q_PROJ}: unexpected" in problems(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_stored_formats_and_shards_are_read_alike(dtype: torch.dtype, tmp_path: Path) -> None:
    model = random_model(4).to(dtype)
    folder = save_checkpoint(tmp_path, model, shard_size="200KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    found = load_checkpoint(folder)
    name = "layers.2.mlp.up_proj.weight"
    stored = model.state_dict()[f"model.{name}"]
    assert torch.equal(found.tensors[name], stored.float())
    assert found.report.drafter_tensors == 15


def test_a_shard_that_the_index_lists_and_nobody_has_is_named(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, random_model(4), shard_size="200KB")
    gone = sorted(folder.glob("model-*.safetensors"))[1]
    lost = sorted(load_file(gone))
    gone.unlink()
    assert f"{lost[0]}: listed in model.safetensors.index.json but in no shard" in problems(folder)


def test_nested_names_are_read_and_a_vision_tower_is_left_alone(folder: Path) -> None:
    def nest(tensors: Tensors) -> None:
        for name in list(tensors):
            if name.startswith("model."):
                tensors["model.language_model." + name.removeprefix("model.")] = tensors.pop(name)
        tensors["model.visual.blocks.0.attn.qkv.weight"] = torch.zeros(3, 3)

    plain = load_checkpoint(folder)
    rewrite(folder, "model.safetensors", nest)
    text = json.loads((folder / "config.json").read_text())
    nested = {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": text,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(nested))
    assert "model.visual.blocks.0.attn.qkv.weight: unexpected" in problems(folder)
    (folder / "config.json").write_text(json.dumps({**nested, "vision_config": {"depth": 1}}))
    found = load_checkpoint(folder)
    assert found.report.vision_tensors == 1
    assert found.tensors.keys() == plain.tensors.keys()
    assert all(torch.equal(found.tensors[name], plain.tensors[name]) for name in plain.tensors)


def test_a_tied_head_may_be_absent_or_equal_but_not_different(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, random_model(6, tie_word_embeddings=True))
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    assert audit(folder).tied
    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    rewrite(folder, "model.safetensors", put("lm_head.weight", embedding.clone()))
    assert audit(folder).ok
    rewrite(folder, "model.safetensors", put("lm_head.weight", embedding + 1))
    assert "lm_head.weight: unexpected" in problems(folder)


def test_fp8_blocks_are_read_and_excluded_modules_stay_unquantised(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, random_model(7, hidden_size=192, intermediate_size=160))
    stands_for = quantise(folder, keep=("in_proj_a", "in_proj_b"))
    found, expanded = load_checkpoint(folder), load_checkpoint(folder, expand_fp8=True)
    assert found.report.quantized_modules == len(stands_for) > 10
    assert found.report.dtypes == ("F32", "F8_E4M3")
    for name, expected in stands_for.items():
        weight = found.tensors[name.removeprefix("model.")]
        assert isinstance(weight, Fp8Weight)
        assert torch.equal(weight.expanded(0, len(expected)), expected)
        assert torch.equal(expanded.tensors[name.removeprefix("model.")], expected)
    stored = [name for name, kept in found.tensors.items() if isinstance(kept, Fp8Weight)]
    assert len(stored) == len(stands_for)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop("model.layers.0.mlp.up_proj.weight_scale_inv"),
         "up_proj.weight_scale_inv: expected shape [1, 1], missing"),
        (put("model.layers.0.mlp.up_proj.weight_scale_inv", torch.ones(2, 1)),
         "found shape [2, 1] in F32"),
        (lambda t: t["model.layers.0.mlp.up_proj.weight_scale_inv"].zero_(),
         "up_proj.weight_scale_inv: all zero"),
        (lambda t: t["model.layers.0.mlp.up_proj.weight"].view(torch.uint8)[3].fill_(0x7F),
         "up_proj.weight: holds values that are not finite"),
        (lambda t: t["model.layers.0.mlp.up_proj.weight"].view(torch.uint8).fill_(0x80),
         "up_proj.weight: all zero"),
        (lambda t: t.update({"lm_head.weight": t["lm_head.weight"].to(torch.float8_e4m3fn)}),
         "lm_head.weight: found F8_E4M3, but config.json does not quantise this module"),
        (lambda t: t.update(
            {"model.layers.0.mlp.up_proj.weight": torch.ones(96, 64, dtype=torch.bfloat16)}),
         "expected F8_E4M3 with scales, found BF16"),
    ],
    ids=["no scale", "scale shape", "zero scale", "not a number", "zero", "excluded",
         "not quantised"],
)  # fmt: skip
def test_a_faulty_fp8_tensor_is_named(
    change: Callable[[Tensors], object], sentence: str, folder: Path
) -> None:
    quantise(folder, keep=("in_proj_a", "in_proj_b"))
    rewrite(folder, "model.safetensors", change)
    assert sentence in problems(folder)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "llama"}, "model_type 'llama'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope_type 'longrope'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "does not say how far"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 0.5}}, "factor of at least 1"),
        ({"layer_types": ["linear_attention"]}, "layer_types"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        ({"num_attention_heads": 3}, "query heads per KV head"),
    ],
)
def test_settings_that_would_be_got_wrong_are_refused(
    changes: dict, sentence: str, folder: Path
) -> None:
    edit_config(folder, **changes)
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(folder)


def test_a_cut_off_shard_is_refused(folder: Path) -> None:
    path = folder / "mtp.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(folder)


def test_audit_prints_text_or_json_and_exits_by_the_outcome(folder: Path) -> None:
    text = CliRunner().invoke(main, ["audit", str(folder)])
    assert text.exit_code == 0
    assert "every tensor is present" in text.output
    report = json.loads(CliRunner().invoke(main, ["audit", str(folder), "--json"]).output)
    assert (report["ok"], report["drafter_tensors"], report["problems"]) == (True, 15, [])
    save_file({"mtp.norm.weight": torch.ones(3)}, folder / "mtp.safetensors")
    broken = CliRunner().invoke(main, ["audit", str(folder), "--json"])
    assert broken.exit_code == 1
    assert len(json.loads(broken.output)["problems"]) == 15


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda t: t.pop(Q_PROJ), "  1 problem:"),
        (lambda t: (t.pop(Q_PROJ), t["mtp.fc.weight"].zero_()), "  2 problems:"),
    ],
)
def test_the_audit_counts_its_problems_in_plain_words(
    change: Callable[[Tensors], object], line: str, folder: Path
) -> None:
    rewrite(folder, "mtp.safetensors", change)
    result = CliRunner().invoke(main, ["audit", str(folder)])
    assert result.exit_code == 1
    assert line in result.output.splitlines()
