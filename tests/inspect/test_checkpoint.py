"""Integrity: each planted defect is named, and the unmodified checkpoint passes beside it."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qualify.errors import UsageError
from qualify.inspect.checkpoint import inspect_checkpoint
from tests.inspect.made import DRAFTER, TARGET, Shapes, drafter_shapes, noise, target_shapes, write

REPO = Path(__file__).parents[2]
INNER = "model.language_model.layers.0."


def sound(folder: Path) -> tuple[Path, Path]:
    """An unmodified target and its drafter."""
    target = write(folder / "target", TARGET, target_shapes())
    return target, write(folder / "drafter", DRAFTER, drafter_shapes())


def said(folder: Path, **more: Any) -> list[str]:
    return [f.sentence for f in inspect_checkpoint(folder, hashes=False, **more).faults]


def without(name: str) -> Callable[[Shapes], None]:
    def edit(shapes: Shapes) -> None:
        del shapes[name]

    return edit


def shaped(name: str, *shape: int, dtype: str = "BF16") -> Callable[[Shapes], None]:
    def edit(shapes: Shapes) -> None:
        shapes[name] = (dtype, shape)

    return edit


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (without("mtp.fc.weight"), "mtp.fc.weight [32, 64] is missing."),
        (without(f"{INNER}linear_attn.A_log"), "A_log [4] is missing."),
        (without("lm_head.weight"), "lm_head.weight [64, 32] is missing."),
        # F062: a head that was stored packed has half the expected width.
        (
            shaped("mtp.fc.weight", 32, 32),
            "mtp.fc.weight is [32, 32] of BF16; [32, 64] is expected",
        ),
        (shaped("mtp.fc.weight", 32, 64, dtype="I32"), "is stored as I32, and no quantization_"),
        (shaped(f"{INNER}mlp.up_proj.weight", 32, 48), "[48, 32] is expected."),
    ],
)
def test_a_tensor_that_is_missing_or_misshapen_is_named(
    tmp_path: Path, edit: Callable[[Shapes], None], says: str
) -> None:
    target, _ = sound(tmp_path)
    shapes = target_shapes()
    edit(shapes)
    bad = said(write(tmp_path / "bad", TARGET, shapes))
    assert said(target) == []
    assert len(bad) == 1
    assert says in bad[0]


TRAINED = [n for n in drafter_shapes() if "conv." in n or n.startswith("candidate_selector.")]


@pytest.mark.parametrize("name", TRAINED)
def test_every_selector_and_convolution_tensor_must_be_there_and_not_zero(
    tmp_path: Path, name: str
) -> None:
    target, drafter = sound(tmp_path)
    assert said(drafter, target=target) == []
    shapes = drafter_shapes()
    del shapes[name]
    (missing,) = said(write(tmp_path / "missing", DRAFTER, shapes), target=target)
    assert f"{name} " in missing
    zero = write(
        tmp_path / "zero",
        DRAFTER,
        drafter_shapes(),
        lambda n, size: bytes(size) if n == name else noise(n, size),
    )
    (empty,) = said(zero, target=target)
    assert empty.startswith(f"{name} [")
    assert empty.endswith("holds nothing but zeros.")


def test_a_large_tensor_with_a_few_bytes_set_is_not_zero_and_one_without_is(
    tmp_path: Path,
) -> None:
    config = copy.deepcopy(TARGET)
    config["text_config"]["vocab_size"] = 100_000
    shapes = target_shapes()
    for name in ("model.language_model.embed_tokens.weight", "lm_head.weight"):
        shapes[name] = ("BF16", (100_000, 32))

    def payload(name: str, size: int) -> bytes:
        if name == "lm_head.weight":
            return bytes(size)
        if name.endswith("embed_tokens.weight"):  # one value, far from every sampled block
            return bytes(1_234_568) + b"\x80\x3f" + bytes(size - 1_234_570)
        return noise(name, size)

    (only,) = said(write(tmp_path / "big", config, shapes, payload))
    assert only == "lm_head.weight [100000, 32] holds nothing but zeros."


def test_a_nan_in_the_payload_is_seen(tmp_path: Path) -> None:
    def payload(name: str, size: int) -> bytes:
        data = noise(name, size)
        return b"\xc0\x7f" + data[2:] if name == "mtp.norm.weight" else data

    (only,) = said(write(tmp_path / "bad", TARGET, target_shapes(), payload))
    assert only == "mtp.norm.weight holds an infinity or a NaN."


def quantised(ignore: list[str], method: str = "compressed-tensors") -> dict[str, Any]:
    return {**TARGET, "quantization_config": {"quant_method": method, "ignore": ignore}}


PLAIN = [
    "mtp.fc",
    *(f"mtp.layers.0.mlp.{p}_proj" for p in ("gate", "up", "down")),
    *(f"mtp.layers.0.self_attn.{p}_proj" for p in "qkvo"),
]
FUSED = ["mtp.layers.0.self_attn.qkv_proj", "mtp.layers.0.mlp.gate_up_proj"]


def test_f061_a_quantised_checkpoint_must_leave_every_mtp_module_alone_fused_names_too(
    tmp_path: Path,
) -> None:
    def faults(ignore: list[str]) -> list[str]:
        name = str(len(list(tmp_path.iterdir())))
        folder = write(tmp_path / name, quantised(ignore), target_shapes())
        return [f.where for f in inspect_checkpoint(folder, hashes=False).faults]

    assert faults([*PLAIN, *FUSED]) == []
    assert faults(["re:^mtp.*"]) == []
    assert faults(["lm_head", "re:.*visual.*"]) == sorted([*PLAIN, *FUSED])
    assert faults(PLAIN) == sorted(FUSED)
    assert faults([*PLAIN[1:], *FUSED]) == ["mtp.fc"]
    assert faults(["mtp"]) == sorted([*PLAIN, *FUSED])  # no prefix: an exact name or a pattern


def test_a_quantised_target_may_store_its_projections_packed(tmp_path: Path) -> None:
    shapes = target_shapes()
    for name in list(shapes):
        if name.startswith("model.") and name.endswith("_proj.weight"):
            out, wide = shapes.pop(name)[1]
            stem = name.removesuffix("weight")
            shapes[f"{stem}weight_packed"] = ("I32", (out, wide // 8))
            shapes[f"{stem}weight_scale"] = ("BF16", (out, 1))
    folder = write(tmp_path / "awq", quantised(["re:^mtp.*", "lm_head"]), shapes)
    assert said(folder) == []
    (first, *more) = said(write(tmp_path / "plain", TARGET, shapes))
    assert "is packed, and no quantization_config says so" in first
    assert more
    name = f"{INNER}mlp.up_proj.weight"
    half = {**shapes, f"{name}_packed": ("I32", (48, 2))}
    config = quantised(["re:^mtp.*", "lm_head"])
    assert said(write(tmp_path / "half", config, half)) == [
        f"{name}_packed is [48, 2] of I32; [48, 4] is expected of 4-bit weights."
    ]
    del shapes[f"{name}_scale"]
    (only,) = said(write(tmp_path / "unscaled", config, shapes))
    assert only == f"{name}_scale is missing beside {name}_packed."


def edited(**changes: Any) -> dict[str, Any]:
    config = copy.deepcopy(DRAFTER)
    for key, value in changes.items():
        inner, _, last = key.rpartition("__")
        (config[inner] if inner else config)[last] = value
    return config


YARN = {"rope_theta": 1e7, "rope_type": "yarn", "factor": 4.0,
        "original_max_position_embeddings": 1024}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_target_layers": 64}, "num_target_layers: the drafter says 64, the target 4."),
        ({"vocab_size": 65}, "vocab_size: the drafter says 65, the target 64."),
        ({"dflash_config__target_layer_ids": [1, 4]}, "names layer 4 of a target with 4."),
        ({"dflash_config__mask_token_id": 64}, "mask_token_id 64 is outside"),
        ({"rope_parameters__rope_theta": 1e6}, "RoPE rope_theta: the drafter says 1000000.0"),
        ({"rope_parameters": YARN}, "RoPE factor: the drafter says 4.0, the target None."),
        ({"max_position_embeddings": 4096}, "max_position_embeddings: the drafter says 4096"),
        ({"architectures": ["DFlashDraftModel"]}, "declares DFlashDraftModel; dflash2 is DFlash2"),
    ],
)
def test_a_drafter_that_belongs_to_another_target_is_named(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    target, drafter = sound(tmp_path)
    assert said(drafter, target=target, kind="dflash2") == []
    other = write(tmp_path / "other", edited(**changes), drafter_shapes())
    assert any(says in s for s in said(other, target=target, kind="dflash2"))


def test_matching_yarn_settings_in_either_notation_agree(tmp_path: Path) -> None:
    config = copy.deepcopy(TARGET)
    del config["text_config"]["rope_parameters"]
    config["text_config"] |= {
        "rope_theta": 10000000,
        "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024},
    }
    target = write(tmp_path / "target", config, target_shapes())
    drafter = write(tmp_path / "drafter", edited(rope_parameters=YARN), drafter_shapes())
    assert said(drafter, target=target) == []


def test_a_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    target, _ = sound(tmp_path)
    file = target / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert "it is cut short" in said(target)[0]
    file.write_bytes(file.read_bytes()[:50])
    assert "its header claims" in said(target)[0]


def test_a_shard_that_the_index_names_must_be_there_and_hold_what_it_names(
    tmp_path: Path,
) -> None:
    shapes = target_shapes()
    names = list(shapes)
    halves = [{n: shapes[n] for n in names[::2]}, {n: shapes[n] for n in names[1::2]}]
    folder = tmp_path / "sharded"
    for number, half in enumerate(halves, start=1):
        write(folder, TARGET, half, file=f"model-0000{number}-of-00002.safetensors")
    where = {n: f"model-0000{i}-of-00002.safetensors" for i, h in enumerate(halves, 1) for n in h}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    assert said(folder) == []
    index.write_text(json.dumps({"weight_map": {**where, "extra.weight": where[names[0]]}}))
    assert "The index names extra.weight" in said(folder)[0]
    (folder / "model-00002-of-00002.safetensors").unlink()
    first, *rest = said(folder)
    assert "The index names model-00002-of-00002.safetensors, which is not there." in first
    assert len(rest) == len(halves[1]) + 1  # each of its tensors, and extra.weight


def test_files_of_two_revisions_in_one_folder_are_a_fault(tmp_path: Path) -> None:
    target, _ = sound(tmp_path)
    notes = target / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    for name, commit in (("config.json", "a" * 40), ("model.safetensors", "a" * 40)):
        (notes / f"{name}.metadata").write_text(f"{commit}\netag\n1.0\n")
    inspection = inspect_checkpoint(target, hashes=False)
    assert (inspection.ok, inspection.facts["revision"]) == (True, "a" * 40)
    (notes / "config.json.metadata").write_text(f"{'b' * 40}\netag\n1.0\n")
    assert "more than one revision" in said(target)[0]


def test_hashes_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    import hashlib

    target, _ = sound(tmp_path)
    files = inspect_checkpoint(target).facts["files"]
    data = (target / "model.safetensors").read_bytes()
    assert files["model.safetensors"]["sha256"] == hashlib.sha256(data).hexdigest()


def test_a_folder_without_a_checkpoint_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        inspect_checkpoint(tmp_path)


def test_a_target_named_as_a_drafter_is_a_usage_error(tmp_path: Path) -> None:
    target, drafter = sound(tmp_path)
    with pytest.raises(UsageError, match="is no drafter"):
        inspect_checkpoint(target, target=drafter, hashes=False)


@pytest.mark.parametrize("rest", [bytes(16), struct.pack("<QQ", 0, 0) + bytes(100)])
def test_a_gguf_without_a_tensor_is_a_fault(tmp_path: Path, rest: bytes) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<I", 3) + rest)
    assert said(file) == ["m.gguf holds no tensor."]


def test_the_projects_own_checkpoint_is_whole() -> None:
    found = inspect_checkpoint(REPO / "fixtures" / "models" / "tiny-qwen3.5", hashes=False)
    assert (found.kind, found.faults, found.unjudged) == ("mtp", (), ())
    assert found.facts["unexpected"] == []


def test_an_unknown_model_type_is_said_and_its_payload_still_looked_at(tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    shapes: Shapes = {"a.weight": ("BF16", (8, 8)), "b.weight": ("BF16", (8, 8))}
    folder = write(
        tmp_path / "m", config, shapes, lambda n, s: bytes(s) if n[0] == "b" else noise(n, s)
    )
    found = inspect_checkpoint(folder, hashes=False)
    assert [f.where for f in found.faults] == ["b.weight"]
    assert "model_type llama" in found.unjudged[0]


def test_a_drafter_as_the_bundled_engine_reads_it_is_whole_and_belongs_to_its_target(
    tmp_path: Path,
) -> None:
    """Made by other hands than this file's: names and shapes are the engine's own."""
    pytest.importorskip("torch")
    from tests.specdec.draft_checkpoints import random_draft

    target = REPO / "fixtures" / "models" / "tiny-qwen3.5"
    random_draft(tmp_path / "drafter", target)
    found = inspect_checkpoint(tmp_path / "drafter", target=target, hashes=False)
    assert (found.kind, found.faults, found.unjudged) == ("dflash2", (), ())
    assert found.facts["tensors"] == found.facts["expected"]
