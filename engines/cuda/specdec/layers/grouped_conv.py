"""DFlash2's convolution along a block, around a sublayer: over its input, and over its output.

    out[i, c] = sum over t of (base[t, c] + delta[i, t, c // group]) * x[i - t, c]

``delta`` is made from the sublayer's normalised input, one set of taps for each side. Rows before
the block count as zero: the anchor's row 0 has no row before it, and row 1's is the anchor's
(sources: the public DFlash2 checkpoints' tensors, and the predictors that read them).
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.layers.linear import Products, Projection


class GroupedConv:
    """``base``: [2 sides, taps, hidden]; ``projection``: [2 * taps * groups, hidden], its outputs
    by side, tap and group. All in FP32: the output's rows may lie beyond FP16's range."""

    def __init__(self, base: Tensor, projection: Tensor, group: int, products: Products) -> None:
        self._base = base
        self._taps, self._hidden = base.shape[1:]
        self._group = group
        self._project = Projection(projection, products)

    def enter(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised rows [blocks, rows, hidden]: convolved, and the delta for ``leave``."""
        groups = self._hidden // self._group
        delta = self._project(x.flatten(0, 1)).view(*x.shape[:2], 2, self._taps, groups)
        return self._convolve(x, 0, delta[:, :, 0]), delta[:, :, 1]

    def leave(self, x: Tensor, delta: Tensor) -> Tensor:
        """The sublayer's output [blocks, rows, hidden], convolved."""
        return self._convolve(x, 1, delta)

    def _convolve(self, x: Tensor, side: int, delta: Tensor) -> Tensor:
        grouped = x.unflatten(2, (-1, self._group))
        base = self._base[side].unflatten(1, (-1, self._group))
        out = torch.zeros_like(grouped)
        for tap in range(min(self._taps, x.shape[1])):
            kernel = base[tap] + delta[:, tap:, tap, :, None]
            out[:, tap:] += kernel * grouped[:, : x.shape[1] - tap]
        return out.flatten(2)
