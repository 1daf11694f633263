"""Root-mean-square norms. The target's weights are offsets from one; ``linear_attn.norm`` is a
plain gamma (source: Qwen3.5's reference implementation)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, gamma: Tensor | None, eps: float) -> Tensor:
    """x * rsqrt(mean(x²) + eps) * gamma over the last dimension; gamma None is one.

    Spelled out on CPU because ``torch.nn.functional.rms_norm`` has no kernel of its own there and
    costs half as much again; multiply, add, square root and divide are exact in every code path.
    On CUDA the fused kernel, which gives each row a block of its own: a plain sum shares a row out
    to threads by how many rows there are.
    """
    if x.device.type != "cpu":
        return F.rms_norm(x, (x.shape[-1],), gamma, eps)
    scale = (x * x).sum(-1, keepdim=True).div_(x.shape[-1]).add_(eps).rsqrt_()
    y = torch.mul(x, scale)
    return y if gamma is None else y.mul_(gamma)
