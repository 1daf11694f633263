"""Read a block drafter's tensors strictly: a missing or zero one would only show in acceptance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from specdec.draft_config import BlockConfig, DraftTree
from specdec.shards import Shards, is_float, is_trained
from specdec.tensors import Expected


def backbone_tensors(config: BlockConfig) -> Iterator[Expected]:
    """The tensors that every block drafter has: 11 a layer and 3."""
    hidden, dim = config.hidden, config.head_dim
    heads, kv_heads = config.heads * dim, config.kv_heads * dim
    yield Expected("fc.weight", (hidden, len(config.taps) * hidden))
    yield Expected("hidden_norm.weight", (hidden,))
    yield Expected("norm.weight", (hidden,))
    for index in range(config.layers):
        at = f"layers.{index}."
        yield Expected(f"{at}input_layernorm.weight", (hidden,))
        yield Expected(f"{at}post_attention_layernorm.weight", (hidden,))
        yield Expected(f"{at}self_attn.q_proj.weight", (heads, hidden))
        yield Expected(f"{at}self_attn.k_proj.weight", (kv_heads, hidden))
        yield Expected(f"{at}self_attn.v_proj.weight", (kv_heads, hidden))
        yield Expected(f"{at}self_attn.o_proj.weight", (hidden, heads))
        yield Expected(f"{at}self_attn.q_norm.weight", (dim,))
        yield Expected(f"{at}self_attn.k_norm.weight", (dim,))
        yield Expected(f"{at}mlp.gate_proj.weight", (config.intermediate, hidden))
        yield Expected(f"{at}mlp.up_proj.weight", (config.intermediate, hidden))
        yield Expected(f"{at}mlp.down_proj.weight", (hidden, config.intermediate))


def read_draft_tensors(
    tree: DraftTree, expected: Iterable[Expected], device: torch.device
) -> dict[str, Tensor]:
    """Every expected tensor by name, FP32 on ``device``. Raises CheckpointError with all faults:
    missing, misshapen, not a float format, not finite, all zero, or not expected."""
    shards = Shards(tree.folder)
    tree.problems += shards.problems
    found: dict[str, Tensor] = {}
    left = dict(shards.stored)
    for one in expected:
        stored = left.pop(one.name, None)
        if stored is None:
            tree.problems.append(f"{one.name}: missing, expected shape {list(one.shape)}")
            continue
        if stored.shape != one.shape or not is_float(stored.dtype):
            tree.problems.append(
                f"{one.name}: expected shape {list(one.shape)} in BF16, F16 or F32, found shape "
                f"{list(stored.shape)} in {stored.dtype}"
            )
            continue
        values = shards.tensor(one.name).to(torch.float32)
        finite, nonzero = is_trained(values)
        tree.must(finite, f"{one.name}: holds values that are not finite")
        tree.must(nonzero or not finite, f"{one.name}: all zero, so it was never trained")
        found[one.name] = values.to(device)
    for stored in left.values():
        tree.problems.append(
            f"{stored.name}: unexpected, shape {list(stored.shape)} in {stored.dtype}"
        )
    tree.finish()
    return found
