"""Small DSpark checkpoints for the small random targets, in the public layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from draft_checkpoints import save_draft
from safetensors.torch import load_file
from torch import Tensor


def dspark_config(target_dir: Path, **changes: Any) -> dict[str, Any]:
    """A config that fits the target; ``changes`` go to ``dflash_config`` where a key of that name
    is there, else to the root. None takes a key away."""
    target = json.loads((target_dir / "config.json").read_text())
    nested: dict[str, Any] = {
        "attention_mode": "gqa", "projector_type": "dspark", "mask_token_id": 250,
        "target_layer_ids": [0, 3],
    }  # fmt: skip
    root: dict[str, Any] = {
        "architectures": ["DSparkDraftModel"], "model_type": "qwen3",
        "vocab_size": target["vocab_size"], "hidden_size": target["hidden_size"],
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu", "attention_bias": False,
        "is_causal": False, "rms_norm_eps": 1e-6, "block_size": 7,
        "layer_types": ["full_attention"] * 2, "sliding_window": None,
        "max_position_embeddings": target["max_position_embeddings"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 5_000.0},
        "num_target_layers": target["num_hidden_layers"], "markov_rank": 8,
        "markov_head_type": "vanilla", "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }  # fmt: skip
    for key, value in changes.items():
        place = nested if key in nested else root
        if value is None:
            place.pop(key, None)
        else:
            place[key] = value
    return {**root, "dflash_config": nested}


def dspark_shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor's shape, as the public checkpoint's description lists them."""
    hidden, dim, inner = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    heads, kv_heads = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    vocab, rank = c["vocab_size"], c["markov_rank"]
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(c["dflash_config"]["target_layer_ids"]) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "markov_head.markov_w1.weight": (vocab, rank),
        "markov_head.markov_w2.weight": (vocab, rank),
        "confidence_head.proj.weight": (1, hidden + rank),
        "confidence_head.proj.bias": (1,),
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
    return shapes


def random_dspark(folder: Path, target_dir: Path, seed: int = 8, **changes: Any) -> Path:
    """All tensors random and far from zero; its drafts are hardly ever right."""
    config = dspark_config(target_dir, **changes)
    generator = torch.Generator().manual_seed(seed)

    def make(shape: tuple[int, ...]) -> Tensor:
        values = torch.randn(shape, generator=generator)
        return 1.0 + 0.2 * values if len(shape) == 1 else 1.5 * values * shape[-1] ** -0.5

    return save_draft(folder, config, {n: make(s) for n, s in dspark_shapes(config).items()})


def agreeing_dspark(folder: Path, target_dir: Path, **changes: Any) -> Path:
    """A drafter for an ``agreeing_checkpoint`` that is often right: its Markov head knows what
    mostly follows each token, and its layers add just enough to be wrong now and then."""
    target = load_file(target_dir / "model.safetensors")
    embedding, head = target["model.embed_tokens.weight"], target["lm_head.weight"]
    changes = {"markov_rank": embedding.shape[1], **changes}
    random_dspark(folder, target_dir, **changes)
    tensors = load_file(folder / "model.safetensors")
    tensors["norm.weight"].mul_(0.1)
    tensors["markov_head.markov_w1.weight"] = (
        embedding * embedding.pow(2).mean(1, keepdim=True).rsqrt()
    )
    tensors["markov_head.markov_w2.weight"] = head.clone()
    return save_draft(folder, dspark_config(target_dir, **changes), tensors)
