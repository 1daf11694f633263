"""A projection whose outputs are spread over ranks and put together again.

The usual way shards the inputs of the second product of a pair and adds the ranks' partial sums up.
Here its outputs are sharded too: its inputs, spread over the ranks as the first product left them,
are gathered, each rank computes its share of the outputs over all inputs, and the shares are
gathered. Twice the collectives, and no sum is ever split: TP 1 has nothing to imitate.
"""

from __future__ import annotations

from torch import Tensor

from specdec.layers.fp8 import Fp8Weight
from specdec.layers.linear import Products, projection


class Joined:
    """y = x Wᵀ, whole on every rank. ``weight``: this rank's rows of W, all inputs.

    ``spread``: x comes as this rank's columns and is gathered first; otherwise it is whole.
    """

    def __init__(self, weight: Tensor | Fp8Weight, products: Products, spread: bool = True) -> None:
        self._project = projection([weight], products)
        self._ranks = products.ranks
        self._spread = spread

    def __call__(self, x: Tensor) -> Tensor:
        if self._ranks is None:
            return self._project(x)
        whole = self._ranks.join(x) if self._spread else x
        return self._ranks.join(self._project(whole))
