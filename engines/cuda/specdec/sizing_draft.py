"""How many bytes a DFlash2 draft checkpoint takes, from its config alone.

Every rank holds all of it (the backbone is replicated), an element of the dense format each. What
a runtime shards beside it (a copy of the target's head, for one) is no part of the checkpoint and
does not follow from these shapes. Source of the tensors: the public checkpoint's names and shapes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from specdec.errors import CheckpointError

Shapes = dict[str, tuple[int, ...]]


def dflash2_shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor that a checkpoint of this config has: for five layers of the
    public one 58 of the backbone and 23 of convolutions and selector."""
    own = config["dflash_config"]
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    rank, vocabulary = own["selector_rank"], config["vocab_size"]
    kernel, groups = own["conv_kernel_size"], hidden // own["conv_group_size"]
    shapes: Shapes = {
        "fc.weight": (hidden, len(own["target_layer_ids"]) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "candidate_selector.predecessor_codebook": (vocabulary, rank),
        "candidate_selector.successor_codebook": (vocabulary, rank),
        "candidate_selector.hidden_projection.weight": (rank, hidden),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"layers.{layer}."
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
        for place in ("attention_conv", "mlp_conv"):  # before and after: two sides each
            shapes[f"{at}{place}.base_kernel"] = (2, kernel, hidden)
            shapes[f"{at}{place}.kernel_projection.weight"] = (2 * kernel * groups, hidden)
    return shapes


def dflash2_bytes(path: Path, element_bytes: int) -> int:
    """Bytes on every rank. ``path``: the checkpoint's folder, or its config alone."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text("utf-8"))
        shapes = dflash2_shapes(config)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} is no config of a DFlash2 drafter: {error!r}.", "Give its folder or config."
        ) from None
    return element_bytes * sum(math.prod(shape) for shape in shapes.values())
