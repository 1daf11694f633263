"""Row independence: choosing the matrix product that has it, and checking the whole model for it.

A greedy answer is the same with and without speculation, alone and in a batch, if no row's bits
depend on the rows that travel with it. The layers are built for that (fixed shapes by absolute
position, exact or whole-vector elementwise work); whether this machine's libraries keep to it is
measured here at start, on the checkpoint's own weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.layers.linear import Products, Projection

TILE_ROWS_CPU = 8
TILE_ROWS_CUDA = 64
ROW_COUNTS = (1, 2, 3, 5, 8, 13, 64, 511)


def choose_products(device: torch.device, weights: list[Tensor]) -> Products:
    """The fastest product whose rows are independent of their number, on these weights.

    Tries oneDNN's packed product on CPU, for one weight of each shape and several row counts;
    otherwise rows travel in tiles of one fixed size, which needs no check.
    """
    if device.type != "cpu":
        return Products("tiled", TILE_ROWS_CUDA)
    packed = Products("onednn", 0)
    shapes = {tuple(weight.shape): weight for weight in weights if weight.dim() == 2}
    if _has_onednn() and all(rows_are_independent(w, packed) for w in shapes.values()):
        return packed
    return Products("tiled", TILE_ROWS_CPU)


def rows_are_independent(weight: Tensor, products: Products) -> bool:
    """Whether rows of x Wᵀ are bitwise the same for all of ``ROW_COUNTS``."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(max(ROW_COUNTS), weight.shape[1], generator=generator)
    project = Projection(weight, products)
    whole = project(x)
    return all(torch.equal(project(x[-rows:].clone()), whole[-rows:]) for rows in ROW_COUNTS)


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn, "_linear_pointwise"
    )
