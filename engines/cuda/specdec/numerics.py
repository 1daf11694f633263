"""Row independence: choosing the matrix product that has it, and checking the whole model for it.

A greedy answer is the same with and without speculation, alone and in a batch, if no row's bits
depend on the rows that travel with it. The layers are built for that (fixed shapes by absolute
position, exact or whole-vector elementwise work); whether this machine's libraries keep to it is
measured here at start, on the checkpoint's own weights.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from specdec.layers.fp8 import Fp8Projection, Fp8Weight
from specdec.layers.linear import Kind, Products, Projection
from specdec.parallel.ranks import Ranks

TILE_ROWS_CPU = 8
TILE_ROWS_CUDA = 64
ROW_COUNTS = (1, 2, 3, 5, 8, 13, 64, 511)


def choose_products(
    device: torch.device, weights: Seq[Tensor | Fp8Weight], ranks: Ranks | None = None
) -> Products:
    """The fastest product whose rows are independent of their number, on these weights.

    On CPU tries FBGEMM's half-width weights, then oneDNN's packed product, for one weight of each
    shape and several row counts; otherwise, and on CUDA, rows travel in tiles of one fixed size,
    which needs no check. FP8 weights are tried apart. All ``ranks`` take the same one.
    """
    if device.type != "cpu":
        return Products("tiled", TILE_ROWS_CUDA, ranks, TILE_ROWS_CUDA)
    shapes = {tuple(w.shape): w for w in weights if isinstance(w, Tensor) and w.dim() == 2}
    stored = {tuple(w.shape): w for w in weights if isinstance(w, Fp8Weight)}

    def serves(available: bool, kind: Kind) -> bool:
        tried = Products(kind, 0)
        good = available and all(rows_are_independent(w, tried) for w in shapes.values())
        return good if ranks is None else ranks.all_true(good, device)

    good = _has_onednn() and all(fp8_rows_are_independent(w) for w in stored.values())
    good = good if ranks is None else ranks.all_true(good, device)
    fp8 = 0 if good else TILE_ROWS_CPU
    if not serves(_has_onednn(), "onednn"):
        return Products("tiled", TILE_ROWS_CPU, ranks, fp8)
    return Products("half" if serves(_has_half(), "half") else "onednn", 0, ranks, fp8)


def rows_are_independent(weight: Tensor, products: Products) -> bool:
    """Whether rows of x Wᵀ are bitwise the same for all of ``ROW_COUNTS``."""
    return _same_rows(Projection(weight, products), weight.shape[1])


def fp8_rows_are_independent(weight: Fp8Weight) -> bool:
    """The same for a weight in FP8 blocks, its rows not in tiles."""
    return _same_rows(Fp8Projection(weight, 0), weight.shape[1])


def _same_rows(project: Callable[[Tensor], Tensor], inputs: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(max(ROW_COUNTS), inputs, generator=generator)
    whole = project(x)
    return all(torch.equal(project(x[-rows:].clone()), whole[-rows:]) for rows in ROW_COUNTS)


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _has_half() -> bool:
    """Whether FBGEMM is built in and this processor runs its FP16 kernels."""
    engines = torch.backends.quantized.supported_engines
    if "fbgemm" not in engines:
        return False
    try:
        packed = torch.ops.quantized.linear_prepack_fp16(torch.ones(1, 1), None)
        return bool(torch.ops.quantized.linear_dynamic_fp16(torch.ones(1, 1), packed) == 1.0)
    except (RuntimeError, AttributeError):
        return False
