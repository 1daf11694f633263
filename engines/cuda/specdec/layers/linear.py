"""A projection whose rows do not know how many travel with them.

Three ways, chosen at load (``numerics.choose_products``). The first two were bitwise the same for
every number of rows tried, from 1 to 512, so nothing is padded; the third is so by construction.

``half``    the weight is held in FP16, activations and sums in FP32 (FBGEMM). Taken only for a
            weight that FP16 holds exactly, as it does a BF16 one after scaling by a power of two:
            the same products at half of the memory traffic, which is what decode waits for.
``onednn``  the weight is packed once, in FP32, for oneDNN's matrix product.
``tiled``   rows travel in tiles of one fixed size, padded with zeros: every product has one shape.

A weight in FP8 blocks stays as it is stored and has a product of its own (``fp8.py``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.layers.fp8 import FEWEST_ROWS, Fp8Projection, Fp8Weight, joined
from specdec.parallel.ranks import Ranks

Kind = Literal["half", "onednn", "tiled"]

HALF_EXPONENT = 14  # the largest weight is scaled to just below 2**15


@dataclass(frozen=True)
class Products:
    """How matrix products run. ``half`` falls back on ``onednn`` for a weight that it cannot hold.
    ``tile_rows``: the tile of ``tiled``. ``ranks``: among whom the weights' rows are divided; what
    a weight as a whole decides is decided together. ``fp8_tile_rows``: see ``Fp8Projection``."""

    kind: Kind
    tile_rows: int
    ranks: Ranks | None = None
    fp8_tile_rows: int = FEWEST_ROWS


class Projection:
    """y = x Wᵀ (+ bias). ``weight``: [outputs, inputs] FP32; x: [rows, inputs]."""

    def __init__(self, weight: Tensor, products: Products, bias: Tensor | None = None) -> None:
        self.outputs, self.inputs = weight.shape
        self.kind = products.kind
        self._bias = bias
        self._tile = products.tile_rows
        self._unscale = 1.0
        if self.kind == "half":
            scale = exact_half_scale(weight, products.ranks) if bias is None else None
            if scale is None:
                self.kind = "onednn"
            else:
                self._unscale = 1.0 / scale
                self._weight = torch.ops.quantized.linear_prepack_fp16(weight * scale, None)
        if self.kind == "onednn":
            # 64: rows the packing is tuned for; it serves every number of them.
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 64)
        if self.kind == "tiled":
            self._weight = weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor
        if self.kind == "half":
            y = torch.ops.quantized.linear_dynamic_fp16(x, self._weight)
            return y if self._unscale == 1.0 else y.mul_(self._unscale)
        if self.kind == "onednn":
            y = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return y
        return self._tiled(x)

    def _tiled(self, x: Tensor) -> Tensor:
        rows, tile = x.shape[0], self._tile
        missing = -rows % tile
        if missing:
            x = F.pad(x, (0, 0, 0, missing))
        if x.shape[0] == tile:
            return F.linear(x, self._weight, self._bias)[:rows]
        pieces = [F.linear(piece, self._weight, self._bias) for piece in x.split(tile)]
        return torch.cat(pieces)[:rows]


class SideBySide:
    """Projections of the same rows, their outputs side by side."""

    def __init__(self, projections: Seq[Callable[[Tensor], Tensor]]) -> None:
        self._projections = projections

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([project(x) for project in self._projections], 1)


def projection(
    parts: Seq[Tensor | Fp8Weight], products: Products
) -> Projection | Fp8Projection | SideBySide:
    """One projection by all parts' rows in order, in as few products as their formats allow."""
    made: list[Projection | Fp8Projection] = []
    for stored, run in itertools.groupby(parts, lambda part: isinstance(part, Fp8Weight)):
        if stored:
            weight = joined([part for part in run if isinstance(part, Fp8Weight)])
            made.append(Fp8Projection(weight, products.fp8_tile_rows))
        else:
            dense = [part for part in run if isinstance(part, Tensor)]
            whole = dense[0] if len(dense) == 1 else torch.cat(dense)
            made.append(Projection(whole, products))
    return made[0] if len(made) == 1 else SideBySide(made)


def padded_to(weight: Tensor | Fp8Weight, rows: int) -> Tensor | Fp8Weight:
    """The weight with rows of zeros after its own, ``rows`` in all."""
    missing = rows - weight.shape[0]
    if isinstance(weight, Fp8Weight):
        return weight.padded(missing)
    return F.pad(weight, (0, 0, 0, missing)) if missing else weight


def exact_half_scale(weight: Tensor, ranks: Ranks | None = None) -> float | None:
    """The power of two by which ``weight`` becomes exactly representable in FP16, if there is one.

    The weight as it is (scale 1) is preferred; otherwise its largest element goes to the top of
    FP16's range, which leaves 31 binary orders of magnitude below it for 8-bit mantissas. With
    ``ranks`` it is that of the weight whose rows they share.
    """
    largest = float(weight.abs().max())
    if ranks is not None:
        largest = ranks.largest(largest, weight.device)
    if largest == 0.0 or not math.isfinite(largest):
        return None
    for scale in (1.0, 2.0 ** (HALF_EXPONENT - math.floor(math.log2(largest)))):
        scaled = weight * scale
        exact = torch.equal(scaled.to(torch.float16).to(torch.float32), scaled)
        if exact if ranks is None else ranks.all_true(exact, weight.device):
            return scale
    return None
