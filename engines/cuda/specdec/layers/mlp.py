"""SwiGLU: down(silu(gate(x)) * up(x)), gate and up in one product."""

from __future__ import annotations

from torch import Tensor

from specdec.layers.fp8 import Fp8Weight
from specdec.layers.linear import Products, padded_to, projection
from specdec.layers.pointwise import padded_lanes, silu
from specdec.parallel.joined import Joined


class Mlp:
    """``gate``, ``up``: [width, hidden]; ``down``: [hidden, width]. Under several ranks the width
    is this rank's share, and ``down`` this rank's rows."""

    def __init__(
        self,
        gate: Tensor | Fp8Weight,
        up: Tensor | Fp8Weight,
        down: Tensor | Fp8Weight,
        products: Products,
    ) -> None:
        self._width, self._lanes = gate.shape[0], padded_lanes(gate.shape[0])
        # SiLU in whole vectors, however the width is shared out (``pointwise.py``).
        self._gate_up = projection((padded_to(gate, self._lanes), up), products)
        self._down = Joined(down, products)

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, hidden] to [rows, hidden]."""
        both = self._gate_up(x)
        gates = silu(both[:, : self._lanes])[:, : self._width]
        return self._down(gates.mul_(both[:, self._lanes :]))
