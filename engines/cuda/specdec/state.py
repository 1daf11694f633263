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
from specdec.contract import KvDtype
from specdec.draft_facts import KvShape
from specdec.layers.pointwise import padded_lanes
from specdec.layers.quant import expand_heads, groups_of, quantize_heads
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

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """Every tensor with a row for each row of the pool."""
        return self.keys, self.values

    def write(self, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        self.keys.index_copy_(0, rows, keys)
        self.values.index_copy_(0, rows, values)

    def opened(self, parts: Seq[Tensor]) -> tuple[Tensor, Tensor]:
        """Keys and values in FP32 of some rows of ``parts``."""
        keys, values = parts
        return keys, values


@dataclass(frozen=True)
class Fp8KvState(KvState):
    """The same in FP8 (``layers/quant.py``): a byte an element, and ``key_scales``,
    ``value_scales`` [pool rows, KV heads, groups] in FP16."""

    key_scales: Tensor
    value_scales: Tensor

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self.keys, self.values, self.key_scales, self.value_scales

    def write(self, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        stored = (*quantize_heads(keys), *quantize_heads(values))
        for part, new in zip(self.parts, (stored[0], stored[2], stored[1], stored[3]), strict=True):
            part.index_copy_(0, rows, new)

    def opened(self, parts: Seq[Tensor]) -> tuple[Tensor, Tensor]:
        keys, values, key_scales, value_scales = parts
        return expand_heads(keys, key_scales), expand_heads(values, value_scales)


class ModelState:
    """KV rows of the pool and the recurrent state of every slot.

    ``layers[i]`` is the state of target layer i; ``drafter[i]`` that of the draft layer i that has
    a row for each row of the pool (``drafter.DraftFacts.pool_kv``), in FP32 whatever ``kv_dtype``
    says of the target's: a drafter's rows change no answer.
    """

    def __init__(
        self,
        config: ModelConfig,
        slots: int,
        pool_rows: int,
        draft_kv: Seq[KvShape],
        device: torch.device,
        kv_dtype: KvDtype = "float32",
    ) -> None:
        self.config = config
        kv = _fp8_rows if kv_dtype == "fp8" else _kv_rows
        heads, dim = config.num_key_value_heads, config.head_dim
        self.layers: list[DeltaState | KvState] = [
            _delta(config, slots, device) if kind == LINEAR else kv(pool_rows, heads, dim, device)
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
            for part in layer.parts:
                part[first:stop].zero_()

    def copy_rows(self, source: int, target: int, rows: int) -> None:
        """Copy ``rows`` rows of the pool from row ``source`` on to row ``target`` and after."""
        for layer in self._pool_layers():
            for part in layer.parts:
                part[target : target + rows] = part[source : source + rows]

    def _pool_layers(self) -> list[KvState]:
        return [layer for layer in (*self.layers, *self.drafter) if isinstance(layer, KvState)]


def kv_bytes_per_token(
    config: ModelConfig, draft_kv: Seq[KvShape] = (), kv_dtype: KvDtype = "float32"
) -> int:
    """Keys and values of all full-attention layers, with their scales, and in FP32 those of the
    drafter in the pool."""
    heads = config.layer_types.count(FULL) * config.num_key_value_heads
    element = 4 * config.head_dim
    if kv_dtype == "fp8":
        element = config.head_dim + 2 * groups_of(config.head_dim)
    return 2 * (heads * element + sum(4 * shape.heads * shape.dim for shape in draft_kv))


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


def _kv_rows(pool_rows: int, heads: int, dim: int, device: torch.device) -> KvState:
    shape = (pool_rows, heads, dim)
    return KvState(torch.zeros(shape, device=device), torch.zeros(shape, device=device))


def _fp8_rows(pool_rows: int, heads: int, dim: int, device: torch.device) -> Fp8KvState:
    shape, groups = (pool_rows, heads, dim), (pool_rows, heads, groups_of(dim))
    keys, values = (torch.zeros(shape, dtype=torch.uint8, device=device) for _ in range(2))
    scales = [torch.zeros(groups, dtype=torch.float16, device=device) for _ in range(2)]
    return Fp8KvState(keys, values, *scales)


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
            names = ("keys", "values", "key_scales", "value_scales")
            for name, part in zip(names, layer.parts, strict=False):
                found[f"{index}.{name}"] = part[kv_rows.to(part.device)]
    return found
