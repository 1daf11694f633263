"""Root-mean-square norms. The target's weights are offsets from one; ``linear_attn.norm`` is a
plain gamma (source: Qwen3.5's reference implementation)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, gamma: Tensor | None, eps: float) -> Tensor:
    """x * rsqrt(mean(x²) + eps) * gamma over the last dimension; gamma None is one."""
    return F.rms_norm(x, (x.shape[-1],), gamma, eps)
