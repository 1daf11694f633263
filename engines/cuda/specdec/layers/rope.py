"""Rotary positions over the first ``rotary_dim`` channels of a head, half rotation (NeoX order)."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.yarn import Yarn


class RopeTable:
    """Cosines and signed sines for every position, so that no row computes its own.

    ``cos`` and ``sin``: [positions, rotary_dim] FP32. The sine of the first half is negated, which
    makes the rotation ``x * cos + swap(x) * sin`` with ``swap`` exchanging the halves. Under YaRN
    both are scaled by its attention factor.
    """

    def __init__(
        self,
        positions: int,
        rotary_dim: int,
        theta: float,
        device: torch.device,
        yarn: Yarn | None = None,
    ) -> None:
        turns = frequencies(rotary_dim, theta, yarn)
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * turns
        scale = 1.0 if yarn is None else yarn.attention_factor
        cos, sin = angles.cos() * scale, angles.sin() * scale
        self.cos = torch.cat((cos, cos), 1).to(device)
        self.sin = torch.cat((-sin, sin), 1).to(device)
        half = rotary_dim // 2
        order = list(range(half, rotary_dim)) + list(range(half))
        self.swap = torch.tensor(order, device=device)
        self.rotary_dim = rotary_dim

    def rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos, sin of [rows] positions as [rows, 1, rotary_dim] (the 1 spans the heads)."""
        cos = self.cos.index_select(0, positions).unsqueeze(1)
        return cos, self.sin.index_select(0, positions).unsqueeze(1)

    def rotate_(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate [rows, heads, head_dim] in place."""
        turned = heads[..., : self.rotary_dim]
        swapped = turned.index_select(-1, self.swap).mul_(sin)
        turned.mul_(cos).add_(swapped)
        return heads


def frequencies(rotary_dim: int, theta: float, yarn: Yarn | None) -> Tensor:
    """Radians a position of each channel pair, [rotary_dim / 2] FP32."""
    steps = torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim
    turns = 1.0 / theta**steps
    if yarn is None:
        return turns
    slowed = torch.tensor(yarn.slowed(rotary_dim, theta), dtype=torch.float32)
    return turns / yarn.factor * slowed + turns * (1.0 - slowed)
