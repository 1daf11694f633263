"""Read ``config.json`` of a Qwen3.5-type checkpoint; refuse what this engine would get wrong.

Field names and defaults are those of Hugging Face's ``qwen3_5`` / ``qwen3_5_text`` model types.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.errors import CheckpointError
from specdec.yarn import Yarn, read_yarn

LINEAR = "linear_attention"
FULL = "full_attention"


@dataclass(frozen=True)
class Quantization:
    """FP8 E4M3 weights with one scale per block; ``excluded`` modules are stored unquantised."""

    block: tuple[int, int]
    excluded: tuple[str, ...]


@dataclass(frozen=True)
class ModelConfig:
    """The text model's shapes. ``layer_types`` holds LINEAR or FULL for each layer."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    rms_norm_eps: float
    linear_key_heads: int
    linear_value_heads: int
    linear_key_dim: int
    linear_value_dim: int
    conv_kernel: int
    context_length: int
    tied: bool
    mtp_layers: int
    has_vision: bool
    eos_token_ids: frozenset[int]
    quantization: Quantization | None
    yarn: Yarn | None = None

    @property
    def key_width(self) -> int:
        return self.linear_key_heads * self.linear_key_dim

    @property
    def value_width(self) -> int:
        return self.linear_value_heads * self.linear_value_dim

    @property
    def conv_width(self) -> int:
        return 2 * self.key_width + self.value_width


def read_config(model_dir: Path) -> ModelConfig:
    """Read and check ``config.json`` (and ``generation_config.json`` for end tokens).

    The path of such a file itself will do where its shapes are all that is wanted.
    """
    path = model_dir if model_dir.is_file() else model_dir / "config.json"
    root = _read_json(path)
    nested = "text_config" in root
    text = root["text_config"] if nested else root
    kind = text.get("model_type")
    if kind not in ("qwen3_5_text", "qwen3_5"):
        raise CheckpointError(
            f"{path} declares model_type {kind!r}, which this engine does not run.",
            "Give a checkpoint of type qwen3_5 or qwen3_5_text.",
        )
    _refuse_foreign_settings(path, text)
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    head_dim = int(text.get("head_dim", 256))
    partial = float(rope.get("partial_rotary_factor", text.get("partial_rotary_factor", 0.25)))
    layers = int(text["num_hidden_layers"])
    declared = int(text.get("max_position_embeddings", 32768))
    yarn = read_yarn(rope, declared, path)
    tied_in = root if nested and "tie_word_embeddings" in root else text
    config = ModelConfig(
        architecture=str((root.get("architectures") or ["Qwen3_5ForCausalLM"])[0]),
        vocab_size=int(text["vocab_size"]),
        hidden_size=int(text["hidden_size"]),
        intermediate_size=int(text["intermediate_size"]),
        layer_types=_layer_types(path, text, layers),
        num_attention_heads=int(text["num_attention_heads"]),
        num_key_value_heads=int(text["num_key_value_heads"]),
        head_dim=head_dim,
        rotary_dim=int(head_dim * partial),
        rope_theta=float(rope.get("rope_theta", text.get("rope_theta", 10_000.0))),
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-6)),
        linear_key_heads=int(text.get("linear_num_key_heads", 16)),
        linear_value_heads=int(text.get("linear_num_value_heads", 32)),
        linear_key_dim=int(text.get("linear_key_head_dim", 128)),
        linear_value_dim=int(text.get("linear_value_head_dim", 128)),
        conv_kernel=int(text.get("linear_conv_kernel_dim", 4)),
        context_length=max(declared, yarn.context_length if yarn else 0),
        tied=bool(tied_in.get("tie_word_embeddings", False)),
        mtp_layers=int(text.get("mtp_num_hidden_layers", root.get("mtp_num_hidden_layers", 0))),
        has_vision=bool(root.get("vision_config")),
        eos_token_ids=_end_tokens(model_dir, root, text),
        quantization=_quantization(path, root, text),
        yarn=yarn,
    )
    _refuse_odd_shapes(path, config)
    return config


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist.", "Give a checkpoint folder.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}.", "Fetch the file again.") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is not a JSON object.", "Fetch the file again.")
    return found


def _layer_types(path: Path, text: dict[str, Any], layers: int) -> tuple[str, ...]:
    interval = int(text.get("full_attention_interval", 4))
    types = text.get("layer_types") or [
        LINEAR if (i + 1) % interval else FULL for i in range(layers)
    ]
    if len(types) != layers or any(kind not in (LINEAR, FULL) for kind in types):
        raise CheckpointError(
            f"{path}: layer_types must name {layers} layers as {LINEAR} or {FULL}.",
            "Correct layer_types.",
        )
    return tuple(types)


def _end_tokens(model_dir: Path, root: dict[str, Any], text: dict[str, Any]) -> frozenset[int]:
    """All end tokens that the checkpoint declares, wherever it declares them."""
    sources = [root.get("eos_token_id"), text.get("eos_token_id")]
    generation = model_dir / "generation_config.json"
    if generation.is_file():
        sources.append(_read_json(generation).get("eos_token_id"))
    found: set[int] = set()
    for value in sources:
        if isinstance(value, int):
            found.add(value)
        elif isinstance(value, list):
            found.update(int(item) for item in value)
    return frozenset(found)


def _quantization(path: Path, root: dict[str, Any], text: dict[str, Any]) -> Quantization | None:
    declared = root.get("quantization_config") or text.get("quantization_config")
    if not declared:
        return None
    block = declared.get("weight_block_size")
    if declared.get("quant_method") != "fp8" or block is None or len(block) != 2:
        raise CheckpointError(
            f"{path}: quantization_config is {declared.get('quant_method')!r} with block {block}.",
            "Only FP8 E4M3 with two-dimensional weight blocks is read.",
        )
    excluded = declared.get("modules_to_not_convert") or declared.get("ignored_layers") or []
    return Quantization((int(block[0]), int(block[1])), tuple(str(item) for item in excluded))


def _refuse_foreign_settings(path: Path, text: dict[str, Any]) -> None:
    faults = [
        (text.get("hidden_act", "silu") != "silu", "hidden_act must be silu"),
        (bool(text.get("attention_bias", False)), "attention_bias must be false"),
        (not text.get("attn_output_gate", True), "attn_output_gate must be true"),
        (bool(text.get("mtp_use_dedicated_embeddings", False)), "MTP must share the embedding"),
        (int(text.get("mtp_num_hidden_layers", 0)) > 1, "at most one MTP layer is supported"),
    ]
    wrong = tuple(sentence for is_wrong, sentence in faults if is_wrong)
    if wrong:
        raise CheckpointError(f"{path} asks for what is not implemented:", "Use another.", wrong)


def _refuse_odd_shapes(path: Path, config: ModelConfig) -> None:
    faults = [
        (config.num_attention_heads % config.num_key_value_heads, "query heads per KV head"),
        (config.linear_value_heads % config.linear_key_heads, "linear value heads per key head"),
        (config.rotary_dim % 2, "rotary dimensions"),
    ]
    wrong = tuple(f"{name} must divide evenly" for is_wrong, name in faults if is_wrong)
    if config.conv_kernel < 2:
        wrong += (f"linear_conv_kernel_dim is {config.conv_kernel}, at least 2 is needed",)
    if wrong:
        raise CheckpointError(f"{path} has shapes that do not fit:", "Correct them.", wrong)
