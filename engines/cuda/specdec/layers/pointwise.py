"""Transcendental functions whose value at a row never depends on how many rows there are.

PyTorch's CPU kernels compute whole vectors with one routine and the remainder of each thread's
share with another, which may differ in the last bit. A call below ``SERIAL_ELEMENTS`` runs on one
thread, and with a last dimension that is a multiple of ``LANES`` there is no remainder, so every
element takes the vector routine. Larger inputs are cut by rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

SERIAL_ELEMENTS = 32_768  # at::internal::GRAIN_SIZE
LANES = 32


def padded_lanes(width: int) -> int:
    """``width`` rounded up to whole lanes."""
    return -(-width // LANES) * LANES


def by_rows(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply an elementwise function to x, in pieces along dimension 0 when x is large."""
    if x.numel() < SERIAL_ELEMENTS or x.device.type != "cpu":
        return function(x)
    rows = max(1, (SERIAL_ELEMENTS - 1) * x.shape[0] // x.numel())
    return torch.cat([function(piece) for piece in x.split(rows)])


def silu(x: Tensor) -> Tensor:
    return by_rows(F.silu, x)


def sigmoid(x: Tensor) -> Tensor:
    return by_rows(torch.sigmoid, x)


def softplus(x: Tensor) -> Tensor:
    return by_rows(F.softplus, x)


def exp(x: Tensor) -> Tensor:
    return by_rows(torch.exp, x)
