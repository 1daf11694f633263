"""A projection whose rows do not know how many travel with them.

Two ways, both by construction, chosen once at load (``numerics.choose_products``):

``onednn``  the weight is packed once for oneDNN's matrix product. On the processors tried, its rows
            were bitwise the same for every number of rows from 1 to 512, so nothing is padded.
``tiled``   rows travel in tiles of one fixed size, padded with zeros: every product has one shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Products:
    """How matrix products run: the kind, and the tile's rows for ``tiled``."""

    kind: Literal["onednn", "tiled"]
    tile_rows: int


class Projection:
    """y = x Wᵀ (+ bias). ``weight``: [outputs, inputs] FP32; x: [rows, inputs]."""

    def __init__(self, weight: Tensor, products: Products, bias: Tensor | None = None) -> None:
        self.outputs, self.inputs = weight.shape
        self._bias = bias
        self._products = products
        if products.kind == "onednn":
            # 64: rows the packing is tuned for; it serves every number of them.
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 64)
        else:
            self._weight = weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        if self._products.kind == "onednn":
            y: Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._weight, self._bias, "none", [], ""
            )
            return y
        return self._tiled(x)

    def _tiled(self, x: Tensor) -> Tensor:
        rows, tile = x.shape[0], self._products.tile_rows
        missing = -rows % tile
        if missing:
            x = F.pad(x, (0, 0, 0, missing))
        if x.shape[0] == tile:
            return F.linear(x, self._weight, self._bias)[:rows]
        pieces = [F.linear(piece, self._weight, self._bias) for piece in x.split(tile)]
        return torch.cat(pieces)[:rows]
