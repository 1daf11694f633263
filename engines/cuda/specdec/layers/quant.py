"""FP8 E4M3: how many scales a matrix of blocks has, and keys and values by groups of channels.

Weights: one scale for each block of the matrix (source: DeepSeek-V3's layout, as Qwen's FP8
checkpoints use it: ``weight_scale_inv`` multiplies); ``fp8.py`` computes with them. Keys and
values: one FP16 scale for each token, KV head and ``KV_GROUP`` channels (source: PocketLLM's FP8
cache).
"""

from __future__ import annotations

import torch
from torch import Tensor

KV_GROUP = 64  # channels of a head that share a scale
LARGEST = 448.0  # of E4M3
NOT_BIT_14 = -16385  # where the shift of a signed byte leaves a second copy of the sign
SMALLEST_SCALE = 2.0**-24  # of FP16; a group of smaller values is stored as zeros


def widened(values: Tensor) -> tuple[Tensor, float]:
    """E4M3 values or their bytes as FP32 divided by a power of two, and that power. No NaN.

    PyTorch's own conversion takes one element at a time on a CPU, ten times as long as this: a byte
    moved into a half's exponent and mantissa is the value over 2**8, subnormals too.
    """
    if values.device.type != "cpu":
        return values.view(torch.float8_e4m3fn).to(torch.float32), 1.0
    bits = values.view(torch.int8).to(torch.int16).bitwise_left_shift_(7)
    return bits.bitwise_and_(NOT_BIT_14).view(torch.float16).to(torch.float32), 256.0


def scale_shape(weight_shape: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    """Shape of the scale matrix: one entry for each block begun."""
    rows, columns = weight_shape
    return (-(-rows // block[0]), -(-columns // block[1]))


def groups_of(head_dim: int) -> int:
    """Scales of a head: one for each group begun."""
    return -(-head_dim // KV_GROUP)


def quantize_heads(rows: Tensor) -> tuple[Tensor, Tensor]:
    """[rows, heads, dim] FP32 to E4M3 bytes (uint8) and FP16 scales [rows, heads, groups].

    A group's largest magnitude becomes ``LARGEST``. Every step is exact in every code path
    (maximum, division, multiplication, rounding to even), so a row's bytes depend on it alone.
    What is not finite stays so: the scale is not a number or infinite then.
    """
    groups = _grouped(rows)
    scales = (groups.abs().amax(-1) / LARGEST).clamp_min(SMALLEST_SCALE).to(torch.float16)
    scaled = groups / scales.to(torch.float32).unsqueeze(-1)
    # The FP16 scale may have been rounded down, and E4M3 turns what is too large into NaN.
    values = scaled.clamp(-LARGEST, LARGEST).flatten(-2)[..., : rows.shape[-1]]
    return values.to(torch.float8_e4m3fn).view(torch.uint8), scales


def expand_heads(values: Tensor, scales: Tensor) -> Tensor:
    """The inverse: [rows, heads, dim] in FP32."""
    wide, gap = widened(values)
    groups = scales.to(torch.float32) * gap
    if wide.shape[-1] % KV_GROUP == 0:
        wide.unflatten(-1, (-1, KV_GROUP)).mul_(groups.unsqueeze(-1))
        return wide
    return wide.mul_(groups.repeat_interleave(KV_GROUP, -1)[..., : wide.shape[-1]])


def _grouped(rows: Tensor) -> Tensor:
    """[..., dim] to [..., groups, KV_GROUP], the last group filled up with zeros."""
    missing = -rows.shape[-1] % KV_GROUP
    padded: Tensor = torch.nn.functional.pad(rows, (0, missing)) if missing else rows
    grouped: Tensor = padded.unflatten(-1, (-1, KV_GROUP))
    return grouped
