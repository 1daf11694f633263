"""Random small checkpoints in the Hugging Face layout, saved by transformers' own classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

VOCABULARY = 256
END_TOKEN = 255


def small_config(**changes: Any) -> Qwen3_5TextConfig:
    """Four layers (three linear, one full), two value heads a key head, grouped queries."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "max_position_embeddings": 2048,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [1, 1, 2],
        },
        "tie_word_embeddings": False,
        "eos_token_id": END_TOKEN,
    }
    return Qwen3_5TextConfig(**{**settings, **changes})


def random_model(seed: int = 0, **changes: Any) -> Qwen3_5ForCausalLM:
    """A model whose weights, norms among them, are all random, with logits of some spread."""
    torch.manual_seed(seed)
    model = Qwen3_5ForCausalLM(small_config(**changes)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.uniform_(-2.0, 1.5)
            elif parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            else:
                parameter.normal_(0.0, 1.5 * parameter.shape[-1] ** -0.5)
    return model


def mtp_tensors(config: Qwen3_5TextConfig, seed: int = 1) -> dict[str, torch.Tensor]:
    """A random MTP head under its real names."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads * config.head_dim
    kv_heads = config.num_key_value_heads * config.head_dim

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * 1.5 * columns**-0.5

    def offset(width: int) -> torch.Tensor:
        return torch.randn(width, generator=generator) * 0.2

    layer = "mtp.layers.0."
    return {
        "mtp.fc.weight": matrix(hidden, 2 * hidden),
        "mtp.pre_fc_norm_embedding.weight": offset(hidden),
        "mtp.pre_fc_norm_hidden.weight": offset(hidden),
        "mtp.norm.weight": offset(hidden),
        f"{layer}input_layernorm.weight": offset(hidden),
        f"{layer}post_attention_layernorm.weight": offset(hidden),
        f"{layer}self_attn.q_proj.weight": matrix(2 * heads, hidden),
        f"{layer}self_attn.k_proj.weight": matrix(kv_heads, hidden),
        f"{layer}self_attn.v_proj.weight": matrix(kv_heads, hidden),
        f"{layer}self_attn.o_proj.weight": matrix(hidden, heads),
        f"{layer}self_attn.q_norm.weight": offset(config.head_dim),
        f"{layer}self_attn.k_norm.weight": offset(config.head_dim),
        f"{layer}mlp.gate_proj.weight": matrix(inner, hidden),
        f"{layer}mlp.up_proj.weight": matrix(inner, hidden),
        f"{layer}mlp.down_proj.weight": matrix(hidden, inner),
    }


def agreeing_checkpoint(folder: Path, **changes: Any) -> Path:
    """A checkpoint whose MTP head is often right: in both models the next token hangs mostly on the
    last one, and the layers add just enough to make the two disagree now and then."""
    model = random_model(3, **changes)
    hidden = model.config.hidden_size
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight")):
                parameter.mul_(0.08)
            elif name == "model.embed_tokens.weight":
                parameter.mul_(4.0)
            elif name == "model.norm.weight":
                parameter.zero_()
    save_checkpoint(folder, model)

    def lean(tensors: dict[str, torch.Tensor]) -> None:
        tensors["mtp.fc.weight"].mul_(0.02)[:, :hidden].add_(torch.eye(hidden))
        tensors["mtp.layers.0.self_attn.o_proj.weight"].mul_(0.05)
        tensors["mtp.layers.0.mlp.down_proj.weight"].mul_(0.05)
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            tensors[f"mtp.{name}.weight"].mul_(0.1)

    rewrite(folder, "mtp.safetensors", lean)
    return folder


def save_checkpoint(
    folder: Path, model: Qwen3_5ForCausalLM, with_mtp: bool = True, shard_size: str = "5GB"
) -> Path:
    """``save_pretrained`` plus, on request, the MTP tensors in a shard of their own."""
    model.save_pretrained(folder, max_shard_size=shard_size)
    if with_mtp:
        edit_config(folder, mtp_num_hidden_layers=1)
        save_file(mtp_tensors(model.config), folder / "mtp.safetensors")
    return folder


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def rewrite(folder: Path, shard: str, change: Any) -> None:
    """Apply ``change`` to a shard's dictionary of tensors and write it back."""
    tensors = load_file(folder / shard)
    change(tensors)
    save_file(tensors, folder / shard)


def quantise(
    folder: Path, keep: tuple[str, ...] = ("in_proj_a", "in_proj_b"), side: int = 128
) -> dict[str, torch.Tensor]:
    """Store projections of the target in FP8 blocks of ``side``; returns what they stand for."""
    stands_for: dict[str, torch.Tensor] = {}

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            if not name.endswith("proj.weight") and ".in_proj_" not in name:
                continue
            if any(part in name for part in keep):
                continue
            weight = tensors[name]
            blocks = [-(-length // side) for length in weight.shape]
            scale = torch.rand(blocks) * 0.01 + 0.01
            spread = scale.repeat_interleave(side, 0)[: weight.shape[0]]
            spread = spread.repeat_interleave(side, 1)[:, : weight.shape[1]]
            tensors[name] = (weight / spread).to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = scale
            stands_for[name] = tensors[name].to(torch.float32) * spread

    rewrite(folder, "model.safetensors", change)
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    kept = [
        f"model.layers.{i}.linear_attn.{part}"
        for i in range(layers)
        for part in ("in_proj_a", "in_proj_b")
    ]
    edit_config(
        folder,
        quantization_config={
            "quant_method": "fp8",
            "weight_block_size": [side, side],
            "modules_to_not_convert": ["lm_head", *kept],
        },
    )
    return stands_for
