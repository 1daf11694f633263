"""Small DFlash2 checkpoints for the small random targets, in the public layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

CLASS = "DFlash2DraftModel"


def draft_config(target_dir: Path, **changes: Any) -> dict[str, Any]:
    """A config that fits the target; ``changes`` go to ``dflash_config`` where a key of that name
    is there, else to the root."""
    target = json.loads((target_dir / "config.json").read_text())
    rope = target["rope_parameters"]
    nested: dict[str, Any] = {
        "block_size": 8, "conv_kernel_size": 2, "conv_group_size": 16, "mask_token_id": 250,
        "selector_rank": 8, "selector_top_k": 6, "target_layer_ids": [0, 2, 3],
    }  # fmt: skip
    root: dict[str, Any] = {
        "architectures": [CLASS], "model_type": "qwen3", "vocab_size": target["vocab_size"],
        "hidden_size": target["hidden_size"], "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
        "attention_bias": False, "is_causal": False, "sliding_window": 40, "rms_norm_eps": 1e-6,
        "max_position_embeddings": target["max_position_embeddings"],
        "rope_parameters": {"rope_type": "default", "rope_theta": rope["rope_theta"]},
        "num_target_layers": target["num_hidden_layers"],
    }  # fmt: skip
    for key, value in changes.items():
        (nested if key in nested else root)[key] = value
    root.setdefault("layer_types", ["sliding_attention"] * root["num_hidden_layers"])
    return {**root, "dflash_config": nested}


def draft_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor's shape, as the public checkpoint's description lists them."""
    c, own = config, config["dflash_config"]
    hidden, dim, inner = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    heads, kv_heads = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    taps, groups = own["conv_kernel_size"], hidden // own["conv_group_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(own["target_layer_ids"]) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "candidate_selector.predecessor_codebook": (c["vocab_size"], own["selector_rank"]),
        "candidate_selector.successor_codebook": (c["vocab_size"], own["selector_rank"]),
        "candidate_selector.hidden_projection.weight": (own["selector_rank"], hidden),
    }
    for i in range(c["num_hidden_layers"]):
        at = f"layers.{i}."
        shapes |= {
            f"{at}input_layernorm.weight": (hidden,),
            f"{at}post_attention_layernorm.weight": (hidden,),
            f"{at}self_attn.q_proj.weight": (heads, hidden),
            f"{at}self_attn.k_proj.weight": (kv_heads, hidden),
            f"{at}self_attn.v_proj.weight": (kv_heads, hidden),
            f"{at}self_attn.o_proj.weight": (hidden, heads),
            f"{at}self_attn.q_norm.weight": (dim,),
            f"{at}self_attn.k_norm.weight": (dim,),
            f"{at}mlp.gate_proj.weight": (inner, hidden),
            f"{at}mlp.up_proj.weight": (inner, hidden),
            f"{at}mlp.down_proj.weight": (hidden, inner),
        }
        for name in ("attention_conv", "mlp_conv"):
            shapes[f"{at}{name}.base_kernel"] = (2, taps, hidden)
            shapes[f"{at}{name}.kernel_projection.weight"] = (2 * taps * groups, hidden)
    return shapes


def random_draft(folder: Path, target_dir: Path, seed: int = 7, **changes: Any) -> Path:
    """All tensors random and far from zero; its drafts are hardly ever right."""
    config = draft_config(target_dir, **changes)
    generator = torch.Generator().manual_seed(seed)

    def make(name: str, shape: tuple[int, ...]) -> Tensor:
        values = torch.randn(shape, generator=generator)
        if len(shape) == 1:
            return 1.0 + 0.2 * values
        if name.endswith(("base_kernel", "codebook")):
            return 0.5 * values
        return 1.5 * values * shape[-1] ** -0.5

    return save_draft(folder, config, {n: make(n, s) for n, s in draft_shapes(config).items()})


def agreeing_draft(folder: Path, target_dir: Path, **changes: Any) -> Path:
    """A drafter for an ``agreeing_checkpoint`` that is often right: its selector knows what mostly
    follows each token, and its layers add just enough to be wrong now and then."""
    target = load_file(target_dir / "model.safetensors")
    embedding, head = target["model.embed_tokens.weight"], target["lm_head.weight"]
    hidden = embedding.shape[1]
    settings = {"selector_rank": hidden, "selector_top_k": 64, **changes}
    config = draft_config(target_dir, **settings)
    random_draft(folder, target_dir, **settings)

    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor.mul_(0.03)
        elif name.endswith("base_kernel"):
            tensor.mul_(0.1)[:, 0] += 1.0
    mask = embedding[config["dflash_config"]["mask_token_id"]]
    rows = mask * mask.pow(2).mean().rsqrt()
    # Every block row is nearly the mask's own, which the projection maps to ones.
    tensors["norm.weight"].fill_(1.0)
    at = "candidate_selector."
    tensors[f"{at}hidden_projection.weight"] = (rows / rows.pow(2).sum()).repeat(hidden, 1)
    normal = embedding * embedding.pow(2).mean(1, keepdim=True).rsqrt()
    tensors[f"{at}predecessor_codebook"] = 2.0 * normal
    tensors[f"{at}successor_codebook"] = head.clone()
    return save_draft(folder, config, tensors)


def save_draft(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder
