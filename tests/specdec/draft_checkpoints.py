"""Small DFlash2 and DSpark checkpoints for the small random targets, in the public layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

DFLASH2 = "DFlash2DraftModel"
DSPARK = "DSparkDraftModel"


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
        "architectures": [DFLASH2], "model_type": "qwen3", "vocab_size": target["vocab_size"],
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
    embedding, head = embedding_and_head(target_dir)
    vocab, hidden = embedding.shape
    settings = {
        "selector_rank": hidden, "selector_top_k": vocab, "output_multiplier": 0.03, **changes,
    }  # fmt: skip
    config = draft_config(target_dir, **settings)
    random_draft(folder, target_dir, **settings)
    tensors = lean(load_file(folder / "model.safetensors"))
    mask = embedding[config["dflash_config"]["mask_token_id"]]
    rows = mask * mask.pow(2).mean().rsqrt()
    at = "candidate_selector."
    # Every block row is nearly the mask's own, which the projection maps to ones.
    tensors[f"{at}hidden_projection.weight"] = (rows / rows.pow(2).sum()).repeat(hidden, 1)
    tensors[f"{at}predecessor_codebook"] = normal(embedding)
    tensors[f"{at}successor_codebook"] = head.clone()
    return save_draft(folder, config, tensors)


def agreeing_dspark(folder: Path, target_dir: Path, **changes: Any) -> Path:
    """The same for DSpark, whose Markov head knows what follows."""
    config = dspark_config(target_dir, **changes)
    generator = torch.Generator().manual_seed(5)
    plain = draft_shapes(draft_config(target_dir))
    tensors = {
        name: torch.randn(shape, generator=generator) * 1.5 * shape[-1] ** -0.5
        if len(shape) == 2
        else 1.0 + 0.2 * torch.randn(shape, generator=generator)
        for name, shape in plain.items()
        if "conv" not in name and "selector" not in name
    }
    embedding, head = embedding_and_head(target_dir)
    lean(tensors)["norm.weight"].mul_(0.1)
    tensors["markov_head.markov_w1.weight"] = normal(embedding)
    tensors["markov_head.markov_w2.weight"] = head.clone()
    width = 2 * embedding.shape[1]
    tensors["confidence_head.proj.weight"] = torch.randn(1, width, generator=generator) * 0.1
    tensors["confidence_head.proj.bias"] = torch.tensor([0.3])
    return save_draft(folder, config, tensors)


def dspark_config(target_dir: Path, **changes: Any) -> dict[str, Any]:
    config = draft_config(target_dir)
    own = config.pop("dflash_config")
    keep = {name: own[name] for name in ("mask_token_id", "target_layer_ids")}
    return {
        **config, "architectures": [DSPARK], "layer_types": ["full_attention"] * 2,
        "block_size": 7, "markov_rank": config["hidden_size"], "markov_head_type": "vanilla",
        "enable_confidence_head": True, "confidence_head_with_markov": True,
        "dflash_config": {"attention_mode": "gqa", "projector_type": "dspark", **keep}, **changes,
    }  # fmt: skip


def lean(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Let layers add little to the rows that enter them."""
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor.mul_(0.03)
        elif name.endswith("base_kernel"):
            tensor.mul_(0.1)[:, 0] += 1.0
    tensors["norm.weight"].fill_(1.0)
    return tensors


def embedding_and_head(target_dir: Path) -> tuple[Tensor, Tensor]:
    target = load_file(target_dir / "model.safetensors")
    return target["model.embed_tokens.weight"], target["lm_head.weight"]


def normal(rows: Tensor) -> Tensor:
    """Rows as the target's final norm makes them."""
    return rows * rows.pow(2).mean(1, keepdim=True).rsqrt()


def save_draft(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder
