"""A product by a weight in FP8 blocks, its bytes read once and widened in registers.

A program computes a tile of ``M`` rows by ``N`` outputs, block of columns by block, and scales each
block's partial sum: the same steps for a row whatever travels beside it. Bytes are widened with
bit moves, so that a device without FP8 arithmetic does as well.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

M, N = 16, 64
PRECISION = "tf32x3"  # three products of 19-bit parts: FP32's accuracy on tensor cores
HALF_GAP = 256.0  # between an E4M3 value and the half that has its bits


@triton.jit
def _product(
    x, weight, scales, scale_row, out,
    rows, outputs, inputs, groups, x_stride,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1) * M + tl.arange(0, M)
    column = tl.program_id(0) * N + tl.arange(0, N)
    within = column < outputs
    owner = tl.load(scale_row + column, mask=within, other=0)
    k = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for group in range(groups):
        at = group * K + k
        live = at < inputs
        a = tl.load(
            x + row[:, None] * x_stride + at[None, :],
            mask=(row < rows)[:, None] & live[None, :], other=0.0,
        )  # fmt: skip
        byte = tl.load(
            weight + column[:, None].to(tl.int64) * inputs + at[None, :],
            mask=within[:, None] & live[None, :], other=0,
        ).to(tl.int16)  # fmt: skip
        half = ((byte & 0x80) << 8) | ((byte & 0x7F) << 7)
        wide = half.to(tl.float16, bitcast=True).to(tl.float32)
        scale = tl.load(scales + owner * groups + group, mask=within, other=0.0).to(tl.float32)
        part = tl.dot(a, tl.trans(wide), input_precision=PRECISION)
        total += part * (scale * GAP)[None, :]
    place = out + row[:, None] * outputs + column[None, :]
    tl.store(place, total, mask=(row < rows)[:, None] & within[None, :])


def fp8_product(x: Tensor, values: Tensor, scales: Tensor, scale_row: Tensor, width: int) -> Tensor:
    """x [rows, inputs] FP32 by ``values`` [outputs, inputs] float8_e4m3fn, transposed: [rows,
    outputs] FP32. ``scales`` [scale rows, blocks], ``scale_row`` [outputs] int64, ``width`` columns
    of a block, a power of two of 16 or more."""
    rows, (outputs, inputs) = x.shape[0], values.shape
    x = x if x.stride(1) == 1 else x.contiguous()
    out = torch.empty(rows, outputs, device=x.device)
    _product[(triton.cdiv(outputs, N), triton.cdiv(rows, M))](
        x, values.view(torch.uint8), scales, scale_row, out,
        rows, outputs, inputs, scales.shape[1], x.stride(0),
        M, N, width, HALF_GAP, PRECISION, num_warps=4,
    )  # fmt: skip
    return out
