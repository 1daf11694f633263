"""Projections by FP8 E4M3 weights that stay as they are stored: a byte an element and one scale for
each block of the matrix. Only a tile of rows is ever expanded, for the one product that needs it.

A weight may be cut by rows, put in another order and joined with others, as ranks and fused
projections do, without its blocks falling on block edges any more: ``scale_row`` says for each row
which row of scales is its own. Source of the layout: DeepSeek-V3's checkpoints (``quant.py``).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec import kernels
from specdec.layers.quant import widened

TILE_ELEMENTS = 1 << 19  # of an expanded tile: 2 MiB in FP32, which stays in a core's cache
FEWEST_ROWS = 8  # a product of fewer rows may take another way through the library


@dataclass(frozen=True)
class Fp8Weight:
    """``values`` [rows, columns] float8_e4m3fn, all finite; ``scales`` [scale rows, column blocks]
    in any float format; ``scale_row`` [rows] int64; ``width``: columns of a block."""

    values: Tensor
    scales: Tensor
    scale_row: Tensor
    width: int

    @classmethod
    def stored(cls, values: Tensor, scales: Tensor, block: tuple[int, int]) -> Fp8Weight:
        """From a checkpoint's tensors: block[0] rows share a row of scales."""
        return cls(values, scales, torch.arange(values.shape[0]) // block[0], block[1])

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    @property
    def device(self) -> torch.device:
        return self.values.device

    def dim(self) -> int:
        return 2

    def numel(self) -> int:
        return self.values.numel()

    def to(self, device: torch.device) -> Fp8Weight:
        parts = (self.values, self.scales, self.scale_row)
        values, scales, scale_row = (part.to(device) for part in parts)
        return Fp8Weight(values, scales, scale_row, self.width)

    def rows(self, index: Tensor) -> Fp8Weight:
        """The rows [n] int64, in that order, as memory of their own; their scales alone."""
        # Not every device selects rows of this format; its bytes can be.
        values = self.values.view(torch.uint8).index_select(0, index).view(torch.float8_e4m3fn)
        used, scale_row = self.scale_row.index_select(0, index).unique(return_inverse=True)
        return Fp8Weight(values, self.scales.index_select(0, used), scale_row, self.width)

    def padded(self, count: int) -> Fp8Weight:
        """With ``count`` rows of zeros after its own, under the first row's scales."""
        if not count:
            return self
        none = self.scale_row.new_zeros(count)
        values = F.pad(self.values.view(torch.uint8), (0, 0, 0, count)).view(torch.float8_e4m3fn)
        return Fp8Weight(values, self.scales, torch.cat((self.scale_row, none)), self.width)

    def expanded(self, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop - 1`` in FP32."""
        part = self.values[first:stop]
        scales = self.scales.index_select(0, self.scale_row[first:stop]).to(torch.float32)
        wide, gap = widened(part)
        scales = scales * gap
        rows, columns = wide.shape
        if columns % self.width == 0:
            wide.view(rows, -1, self.width).mul_(scales.unsqueeze(2))
            return wide
        return wide.mul_(scales.repeat_interleave(self.width, 1)[:, :columns])


def joined(weights: Seq[Fp8Weight]) -> Fp8Weight:
    """One weight with all their rows, in order. They share columns and block width."""
    if len(weights) == 1:
        return weights[0]
    first = weights[0]
    assert all((w.shape[1], w.width) == (first.shape[1], first.width) for w in weights)
    offsets = [0]
    for weight in weights:
        offsets.append(offsets[-1] + weight.scales.shape[0])
    values = torch.cat([w.values.view(torch.uint8) for w in weights]).view(torch.float8_e4m3fn)
    scale_row = torch.cat([w.scale_row + at for w, at in zip(weights, offsets, strict=False)])
    return Fp8Weight(values, torch.cat([w.scales for w in weights]), scale_row, first.width)


class Fp8Projection:
    """y = x Wᵀ, [rows, inputs] to [rows, outputs] in FP32; a tile of W's rows at a time, or on CUDA
    in a kernel that widens bytes as it reads them.

    ``tile_rows``: 0 where the library's product has rows that do not know their number (from
    ``FEWEST_ROWS`` on, to which x is padded); otherwise rows of x travel in tiles of so many.
    """

    def __init__(self, weight: Fp8Weight, tile_rows: int) -> None:
        self.outputs, self.inputs = weight.shape
        self._weight = weight
        self._tile_rows = tile_rows
        self._step = max(1, TILE_ELEMENTS // self.inputs)
        self._kernel = kernels.usable(weight.device, (weight.width,))

    def __call__(self, x: Tensor) -> Tensor:
        if self._kernel:
            from specdec.kernels.fp8_linear import fp8_product  # Triton is not everywhere

            w = self._weight
            return fp8_product(x, w.values, w.scales, w.scale_row, w.width)
        rows = x.shape[0]
        missing = -rows % self._tile_rows if self._tile_rows else max(0, FEWEST_ROWS - rows)
        if missing:
            x = F.pad(x, (0, 0, 0, missing))
        out = x.new_empty(x.shape[0], self.outputs)
        for first in range(0, self.outputs, self._step):
            stop = min(first + self._step, self.outputs)
            tile = self._weight.expanded(first, stop)
            if not self._tile_rows:
                out[:, first:stop] = torch.ops.mkldnn._linear_pointwise(
                    x, tile, None, "none", [], ""
                )
                continue
            for at in range(0, x.shape[0], self._tile_rows):
                out[at : at + self._tile_rows, first:stop] = F.linear(
                    x[at : at + self._tile_rows], tile
                )
        return out[:rows]
