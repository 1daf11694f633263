"""Everything the engine remembers of running sequences, and nothing else does.

Rollback costs nothing here. KV rows and convolution rows of a rejected draft lie beyond the
sequence's position and are overwritten by the next pass; the recurrent state is only stored at
block edges, in two buffers that take turns, and a pass never touches the buffer of the block it
starts in. So forgetting rejected rows is forgetting to count them.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.config import FULL, LINEAR, ModelConfig
from specdec.draft_facts import KvShape
from specdec.layers.pointwise import padded_lanes
from specdec.plan import BLOCK, pool_rows


@dataclass(frozen=True)
class DeltaState:
    """One Gated DeltaNet layer's memory of all slots, two buffers each (block number parity).

    ``matrix``: [slots, 2, value heads, key dim, value dim], the state before the block, FP32.
    ``rows``: [slots, 2, taps + BLOCK, width], the raw rows of q, k, v and the two gates: first
    the ``taps`` rows before the block (for the convolution), then the block's own.
    """

    matrix: Tensor
    rows: Tensor

    def clear_slot(self, slot: int) -> None:
        """Before the first token: a zero state and zero convolution tail in block 0's buffer."""
        self.matrix[slot].zero_()
        self.rows[slot].zero_()


@dataclass(frozen=True)
class KvState:
    """One full-attention layer's rows of the pool: [pool rows, KV heads, head dim] each."""

    keys: Tensor
    values: Tensor

    def write(self, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        self.keys.index_copy_(0, rows, keys)
        self.values.index_copy_(0, rows, values)


class ModelState:
    """KV rows of the pool and the recurrent state of every slot.

    ``layers[i]`` is the state of target layer i; ``drafter[i]`` that of the draft layer i that has
    a row for each row of the pool (``drafter.DraftFacts.pool_kv``).
    """

    def __init__(
        self,
        config: ModelConfig,
        slots: int,
        pool_rows: int,
        draft_kv: Seq[KvShape],
        device: torch.device,
    ) -> None:
        self.config = config
        self.layers: list[DeltaState | KvState] = [
            _delta(config, slots, device) if kind == LINEAR else _kv(config, pool_rows, device)
            for kind in config.layer_types
        ]
        self.drafter = [_kv_rows(pool_rows, shape.heads, shape.dim, device) for shape in draft_kv]

    def clear_slot(self, slot: int) -> None:
        for layer in self.layers:
            if isinstance(layer, DeltaState):
                layer.clear_slot(slot)

    def clear_rows(self, first: int, stop: int) -> None:
        """Zero rows of the pool: a masked row still meets a zero weight, which a NaN survives."""
        for layer in self._pool_layers():
            layer.keys[first:stop].zero_()
            layer.values[first:stop].zero_()

    def copy_rows(self, source: int, target: int, rows: int) -> None:
        """Copy ``rows`` rows of the pool from row ``source`` on to row ``target`` and after."""
        for layer in self._pool_layers():
            for part in (layer.keys, layer.values):
                part[target : target + rows] = part[source : source + rows]

    def _pool_layers(self) -> list[KvState]:
        return [layer for layer in (*self.layers, *self.drafter) if isinstance(layer, KvState)]


def kv_bytes_per_token(config: ModelConfig, draft_kv: Seq[KvShape] = ()) -> int:
    """FP32 keys and values of all full-attention layers, the drafter's in the pool among them."""
    own = config.layer_types.count(FULL) * config.num_key_value_heads * config.head_dim
    return 2 * 4 * (own + sum(shape.heads * shape.dim for shape in draft_kv))


def state_bytes_per_slot(config: ModelConfig) -> int:
    """FP32 bytes of one slot's recurrent state and convolution rows, both buffers."""
    matrix = config.linear_value_heads * config.linear_key_dim * config.linear_value_dim
    return config.layer_types.count(LINEAR) * 2 * 4 * matrix + conv_bytes_per_slot(config)


def conv_bytes_per_slot(config: ModelConfig) -> int:
    """FP32 bytes of one slot's convolution rows, both buffers."""
    rows = (config.conv_kernel - 1 + BLOCK) * _row_width(config)
    return config.layer_types.count(LINEAR) * 2 * 4 * rows


def _row_width(config: ModelConfig) -> int:
    return config.conv_width + 2 * padded_lanes(config.linear_value_heads)


def _delta(config: ModelConfig, slots: int, device: torch.device) -> DeltaState:
    heads = (config.linear_value_heads, config.linear_key_dim, config.linear_value_dim)
    rows = (config.conv_kernel - 1 + BLOCK, _row_width(config))
    return DeltaState(
        torch.zeros((slots, 2, *heads), device=device),
        torch.zeros((slots, 2, *rows), device=device),
    )


def _kv(config: ModelConfig, pool_rows: int, device: torch.device) -> KvState:
    return _kv_rows(pool_rows, config.num_key_value_heads, config.head_dim, device)


def _kv_rows(pool_rows: int, heads: int, dim: int, device: torch.device) -> KvState:
    shape = (pool_rows, heads, dim)
    return KvState(torch.zeros(shape, device=device), torch.zeros(shape, device=device))


def logical_state(
    state: ModelState, slot: int, pages: list[int], page_size: int, position: int
) -> dict[str, Tensor]:
    """What a sequence's first ``position`` tokens determine, by name, as copies.

    For a recurrent layer the state before the block that ``position`` lies in and the raw rows up
    to it; for a full-attention layer its keys and values. Two sequences with the same tokens have
    the same logical state, bit for bit, however they were computed.
    """
    block, offset = divmod(position, BLOCK)
    kv_rows = torch.tensor(pool_rows(pages, 0, position, page_size), dtype=torch.int64)
    found: dict[str, Tensor] = {}
    for index, layer in enumerate(state.layers):
        if isinstance(layer, DeltaState):
            taps = layer.rows.shape[2] - BLOCK
            found[f"{index}.matrix"] = layer.matrix[slot, block % 2].clone()
            found[f"{index}.rows"] = layer.rows[slot, block % 2, : taps + offset].clone()
        else:
            found[f"{index}.keys"] = layer.keys[kv_rows.to(layer.keys.device)]
            found[f"{index}.values"] = layer.values[kv_rows.to(layer.values.device)]
    return found
