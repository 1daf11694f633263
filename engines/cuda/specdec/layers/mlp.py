"""SwiGLU: down(silu(gate(x)) * up(x)), gate and up in one product."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.layers.linear import Products, Projection
from specdec.layers.pointwise import silu
from specdec.parallel.joined import Joined


class Mlp:
    """``gate``, ``up``: [width, hidden]; ``down``: [hidden, width]. Under several ranks the width
    is this rank's share, and ``down`` this rank's rows."""

    def __init__(self, gate: Tensor, up: Tensor, down: Tensor, products: Products) -> None:
        self._width = gate.shape[0]
        self._gate_up = Projection(torch.cat((gate, up)), products)
        self._down = Joined(down, products)

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, hidden] to [rows, hidden]."""
        both = self._gate_up(x)
        return self._down(silu(both[:, : self._width]).mul_(both[:, self._width :]))
