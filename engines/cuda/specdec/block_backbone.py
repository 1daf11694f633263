"""The backbone of a block drafter: a few attention layers over one block and the context before it.

A block is the anchor's row and rows of the mask token. Its rows see each other and, within the
window, the context, whose keys and values come from the target's tapped rows and never from
tokens: ``feature = norm(fc(taps))``, then each layer's own projections. Norms here are plain
gammas, the target's are offsets from one. Everything is FP32: in FP16 the residual and the MLP's
output overflow in the first layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.draft_config import BlockConfig
from specdec.draft_facts import KvShape
from specdec.drafter import TargetSide
from specdec.layers.grouped_conv import GroupedConv
from specdec.layers.linear import Products, Projection
from specdec.layers.mlp import Mlp
from specdec.layers.norm import rms_norm
from specdec.layers.rope import RopeTable
from specdec.model import part

# Context keys and values of one sequence for a layer: [positions, KV heads, dim] each.
ReadContext = Callable[[int], tuple[Tensor, Tensor]]


def few_over_many(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of a block's rows over its context, [1, KV heads, rows, dim] each.

    On CUDA as two plain products: the fused kernels there share work out by heads and rows, of
    which a block has a handful, and walk a long context alone.
    """
    if queries.device.type == "cpu":
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
    if mask is not None:
        scores += mask
    return torch.softmax(scores, -1) @ values


class DraftLayer:
    """One layer; ``weights`` by name without the layer's prefix. With ``attention_conv`` and
    ``mlp_conv`` among them its sublayers have convolutions of groups of ``conv_group`` channels."""

    def __init__(
        self,
        config: BlockConfig,
        weights: dict[str, Tensor],
        products: Products,
        rope: RopeTable,
        conv_group: int | None,
    ) -> None:
        self._c = config
        self._rope = rope
        self._enter = weights["input_layernorm.weight"]
        self._between = weights["post_attention_layernorm.weight"]
        own = part(weights, "self_attn.")
        self._query = Projection(own["q_proj.weight"], products)
        self._key_value = Projection(
            torch.cat((own["k_proj.weight"], own["v_proj.weight"])), products
        )
        self._out = Projection(own["o_proj.weight"], products)
        self._query_gamma, self._key_gamma = own["q_norm.weight"], own["k_norm.weight"]
        mlp = part(weights, "mlp.")
        self._mlp = Mlp(
            mlp["gate_proj.weight"], mlp["up_proj.weight"], mlp["down_proj.weight"], products
        )
        self._convs = [
            GroupedConv(
                weights[f"{name}.base_kernel"],
                weights[f"{name}.kernel_projection.weight"],
                conv_group,
                products,
            )
            for name in ("attention_conv", "mlp_conv")
            if conv_group is not None
        ]

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, hidden], which are features or the block's own, to [rows, KV heads, dim] each."""
        both = self._key_value(x).view(x.shape[0], 2, self._c.kv_heads, self._c.head_dim)
        keys = rms_norm(both[:, 0], self._key_gamma, self._c.eps)
        return self._rope.rotate_(keys, cos, sin), both[:, 1]

    def __call__(
        self, x: Tensor, cos: Tensor, sin: Tensor, masks: Seq[Tensor | None], read: ReadContext
    ) -> Tensor:
        """Blocks [n, block, hidden]; ``cos``, ``sin`` of all their rows; ``read(i)`` gives block
        i's context."""
        entered, delta = rms_norm(x, self._enter, self._c.eps), None
        if self._convs:
            entered, delta = self._convs[0].enter(entered)
        mixed = self._attend(entered, cos, sin, masks, read)
        x = x + (mixed if delta is None else self._convs[0].leave(mixed, delta))
        entered, delta = rms_norm(x, self._between, self._c.eps), None
        if self._convs:
            entered, delta = self._convs[1].enter(entered)
        mixed = self._mlp(entered.flatten(0, 1)).view_as(x)
        return x + (mixed if delta is None else self._convs[1].leave(mixed, delta))

    def _attend(
        self, x: Tensor, cos: Tensor, sin: Tensor, masks: Seq[Tensor | None], read: ReadContext
    ) -> Tensor:
        c = self._c
        flat = x.flatten(0, 1)
        queries = self._query(flat).view(-1, c.heads, c.head_dim)
        queries = self._rope.rotate_(rms_norm(queries, self._query_gamma, c.eps), cos, sin)
        keys, values = self.keys_values(flat, cos, sin)
        queries, keys, values = (t.unflatten(0, (len(x), -1)) for t in (queries, keys, values))
        pieces = [
            self._one(queries[i], keys[i], values[i], masks[i], *read(i)) for i in range(len(x))
        ]
        return self._out(torch.cat(pieces)).view_as(x)

    def _one(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        context_keys: Tensor,
        context_values: Tensor,
    ) -> Tensor:
        """One block's rows [block, heads * dim]. Shapes hang on its position alone, so its bits do
        not depend on the other blocks of the batch."""
        c = self._c
        rows, group = len(queries), c.heads // c.kv_heads
        stacked = queries.view(rows, c.kv_heads, group, c.head_dim).transpose(0, 1)
        all_keys = torch.cat((context_keys, keys)).transpose(0, 1).unsqueeze(0)
        all_values = torch.cat((context_values, values)).transpose(0, 1).unsqueeze(0)
        out = few_over_many(
            stacked.reshape(1, c.kv_heads, rows * group, c.head_dim),
            all_keys,
            all_values,
            None if mask is None else mask.repeat_interleave(group, 0),
        )
        out = out.view(c.kv_heads, rows, group, c.head_dim).transpose(0, 1)
        return out.reshape(rows, c.heads * c.head_dim)


class BlockBackbone:
    """All layers between the target's embedding and its head; stateless."""

    def __init__(
        self,
        config: BlockConfig,
        tensors: dict[str, Tensor],
        side: TargetSide,
        conv_group: int | None = None,
    ) -> None:
        self.config = config
        self.products = replace(side.products, ranks=None)  # whole on every rank
        self._shared = side.shared
        self._device = side.device
        self._feature = Projection(tensors["fc.weight"], self.products)
        self._feature_norm = tensors["hidden_norm.weight"]
        self._norm = tensors["norm.weight"]
        positions = side.positions + config.block  # a block may look past the context's end
        self._rope = RopeTable(
            positions, config.head_dim, config.rope_theta, side.device, config.yarn
        )
        self.layers = [
            DraftLayer(config, part(tensors, f"layers.{i}."), self.products, self._rope, conv_group)
            for i in range(config.layers)
        ]

    @property
    def kv_shapes(self) -> tuple[KvShape, ...]:
        """What each layer remembers of a context position."""
        return (KvShape(self.config.kv_heads, self.config.head_dim),) * self.config.layers

    def features(self, taps: Tensor) -> Tensor:
        """Target rows [rows, taps * hidden] to [rows, hidden]."""
        self._shared.threads.use_for(len(taps))
        return rms_norm(self._feature(taps), self._feature_norm, self.config.eps)

    def context(self, features: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each layer's keys and values of context rows at ``positions`` [rows]."""
        cos, sin = self._rope.rows(positions)
        return [layer.keys_values(features, cos, sin) for layer in self.layers]

    def first_seen(self, position: int) -> int:
        """The first context position that a block at ``position`` reads."""
        window = self.config.window
        return 0 if window is None else max(0, position - window + 1)

    def block(
        self,
        anchors: Seq[int],
        positions: Seq[int],
        read: Callable[[int, int], tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Final-normalised rows [n, block, hidden] of the blocks whose anchor tokens ``anchors``
        stand at ``positions``. ``read(layer, i)``: context of block i from ``first_seen`` on."""
        c, rows = self.config, self.config.block
        ids = torch.full((len(anchors), rows), c.mask_token)
        ids[:, 0] = torch.tensor(anchors)
        places = torch.tensor(positions)[:, None] + torch.arange(rows)
        self._shared.threads.use_for(ids.numel())
        x = self._shared.embed(ids.flatten().to(self._device)).view(len(anchors), rows, -1)
        cos, sin = self._rope.rows(places.flatten().to(self._device))
        masks = [self._mask(position) for position in positions]
        for index, layer in enumerate(self.layers):
            x = layer(x, cos, sin, masks, partial(read, index))
        return rms_norm(x, self._norm, c.eps)

    def _mask(self, position: int) -> Tensor | None:
        """Additive [block, context + block]; None where every row sees everything."""
        c, first = self.config, self.first_seen(position)
        seen = position - first
        last = position + c.block - 1
        beyond = c.window is not None and last - c.window + 1 > first
        if not (beyond or c.causal):
            return None
        row = torch.arange(position, position + c.block)[:, None]
        key = torch.arange(first, position + c.block)[None, :]
        hidden = torch.zeros(c.block, seen + c.block, dtype=torch.bool)
        if c.window is not None:
            hidden |= key <= row - c.window
        if c.causal:
            hidden |= key > row
        return torch.zeros(hidden.shape).masked_fill_(hidden, -math.inf).to(self._device)
