"""Small checkpoints made on the spot: safetensors written by hand, every byte from a hash."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Shapes = dict[str, tuple[str, tuple[int, ...]]]
WIDTH = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "F8_E4M3": 1}

TARGET: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "mtp_num_hidden_layers": 1,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"},
    },
}
DRAFTER: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "num_target_layers": 4,
    "max_position_embeddings": 1024,
    "rope_parameters": {"rope_theta": 10000000.0, "rope_type": "default"},
    "dflash_config": {
        "block_size": 8,
        "conv_group_size": 4,
        "conv_kernel_size": 2,
        "mask_token_id": 60,
        "selector_rank": 4,
        "selector_top_k": 4,
        "target_layer_ids": [1, 3],
    },
}


def target_shapes() -> Shapes:
    """Written out by hand from the architecture, not from the harness's own list."""
    shapes: Shapes = {}

    def put(name: str, *shape: int) -> None:
        shapes[name] = ("BF16", shape)

    def attention(base: str) -> None:
        put(f"{base}q_proj.weight", 64, 32)
        put(f"{base}k_proj.weight", 16, 32)
        put(f"{base}v_proj.weight", 16, 32)
        put(f"{base}o_proj.weight", 32, 32)
        put(f"{base}q_norm.weight", 8)
        put(f"{base}k_norm.weight", 8)

    def block(base: str) -> None:
        put(f"{base}input_layernorm.weight", 32)
        put(f"{base}post_attention_layernorm.weight", 32)
        put(f"{base}mlp.gate_proj.weight", 48, 32)
        put(f"{base}mlp.up_proj.weight", 48, 32)
        put(f"{base}mlp.down_proj.weight", 32, 48)

    inner = "model.language_model."
    put(f"{inner}embed_tokens.weight", 64, 32)
    for layer in range(4):
        base = f"{inner}layers.{layer}."
        block(base)
        if layer == 3:
            attention(f"{base}self_attn.")
            continue
        put(f"{base}linear_attn.in_proj_qkv.weight", 64, 32)
        put(f"{base}linear_attn.in_proj_z.weight", 32, 32)
        put(f"{base}linear_attn.in_proj_b.weight", 4, 32)
        put(f"{base}linear_attn.in_proj_a.weight", 4, 32)
        put(f"{base}linear_attn.conv1d.weight", 64, 1, 4)
        put(f"{base}linear_attn.A_log", 4)
        put(f"{base}linear_attn.dt_bias", 4)
        put(f"{base}linear_attn.norm.weight", 8)
        put(f"{base}linear_attn.out_proj.weight", 32, 32)
    put(f"{inner}norm.weight", 32)
    put("lm_head.weight", 64, 32)
    put("mtp.fc.weight", 32, 64)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        put(f"mtp.{name}.weight", 32)
    block("mtp.layers.0.")
    attention("mtp.layers.0.self_attn.")
    return shapes


def drafter_shapes() -> Shapes:
    shapes: Shapes = {}

    def put(name: str, *shape: int) -> None:
        shapes[name] = ("BF16", shape)

    put("fc.weight", 32, 64)
    put("hidden_norm.weight", 32)
    put("norm.weight", 32)
    for layer in range(2):
        base = f"layers.{layer}."
        put(f"{base}input_layernorm.weight", 32)
        put(f"{base}post_attention_layernorm.weight", 32)
        put(f"{base}self_attn.q_proj.weight", 32, 32)
        put(f"{base}self_attn.k_proj.weight", 16, 32)
        put(f"{base}self_attn.v_proj.weight", 16, 32)
        put(f"{base}self_attn.o_proj.weight", 32, 32)
        put(f"{base}self_attn.q_norm.weight", 8)
        put(f"{base}self_attn.k_norm.weight", 8)
        put(f"{base}mlp.gate_proj.weight", 48, 32)
        put(f"{base}mlp.up_proj.weight", 48, 32)
        put(f"{base}mlp.down_proj.weight", 32, 48)
        for conv in ("attention_conv", "mlp_conv"):
            put(f"{base}{conv}.base_kernel", 2, 2, 32)
            put(f"{base}{conv}.kernel_projection.weight", 32, 32)
    put("candidate_selector.predecessor_codebook", 64, 4)
    put("candidate_selector.successor_codebook", 64, 4)
    put("candidate_selector.hidden_projection.weight", 4, 32)
    return shapes


def write(
    folder: Path,
    config: Mapping[str, Any],
    shapes: Shapes,
    payload: Callable[[str, int], bytes] | None = None,
    file: str = "model.safetensors",
) -> Path:
    """A checkpoint's folder; payload(name, bytes) replaces what a tensor holds."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header: dict[str, Any] = {}
    parts, at = [], 0
    for name, (dtype, shape) in shapes.items():
        size = WIDTH[dtype]
        for n in shape:
            size *= n
        data = payload(name, size) if payload is not None else noise(name, size)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        parts.append(data)
        at += size
    head = json.dumps(header).encode()
    (folder / file).write_bytes(struct.pack("<Q", len(head)) + head + b"".join(parts))
    return folder


def noise(name: str, size: int) -> bytes:
    """Finite BF16 values: the high byte of each keeps its exponent small."""
    data = bytearray(hashlib.shake_256(name.encode()).digest(size))
    data[1::2] = bytes(0x3C | (b & 0x80) for b in data[1::2])
    return bytes(data)
