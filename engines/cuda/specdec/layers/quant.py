"""FP8 E4M3 weights with one scale per block of the weight matrix (source: DeepSeek-V3's layout,
as Qwen's FP8 checkpoints use it: ``weight_scale_inv`` multiplies)."""

from __future__ import annotations

import torch
from torch import Tensor


def scale_shape(weight_shape: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    """Shape of the scale matrix: one entry for each block begun."""
    rows, columns = weight_shape
    return (-(-rows // block[0]), -(-columns // block[1]))


def dequantize(weight: Tensor, scale: Tensor, block: tuple[int, int]) -> Tensor:
    """[rows, columns] float8_e4m3fn and its [row blocks, column blocks] scales to FP32."""
    rows, columns = weight.shape
    spread = scale.to(torch.float32)
    spread = spread.repeat_interleave(block[0], 0)[:rows]
    spread = spread.repeat_interleave(block[1], 1)[:, :columns]
    return weight.to(torch.float32) * spread
