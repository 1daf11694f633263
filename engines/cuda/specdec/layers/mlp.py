"""SwiGLU: down(silu(gate(x)) * up(x)), gate and up in one product."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.layers.linear import Products, Projection
from specdec.layers.pointwise import silu


class Mlp:
    """``gate``, ``up``: [width, hidden]; ``down``: [hidden, width]."""

    def __init__(self, gate: Tensor, up: Tensor, down: Tensor, products: Products) -> None:
        self._width = gate.shape[0]
        self._gate_up = Projection(torch.cat((gate, up)), products)
        self._down = Projection(down, products)

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, hidden] to [rows, hidden]."""
        both = self._gate_up(x)
        return self._down(silu(both[:, : self._width]).mul_(both[:, self._width :]))
