"""Which KV rows a row of a KV block of positions sees: everything before it, and itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specdec.plan import KV_BLOCK


class CausalMask:
    """Additive masks, cut from one table: the row at place o of a KV block sees everything before
    the block and o + 1 of its rows. The table is [KV_BLOCK * group, width] and grows as needed."""

    def __init__(self, group: int, device: torch.device) -> None:
        self._group = group
        self._device = device
        self._table = torch.empty(0, 0, device=device)

    def kept(self, width: int) -> tuple[int, int] | None:
        """Which of ``width`` KV rows are read; None for all (``sliding.py`` leaves some out)."""
        return None

    def cut(self, first: int, stop: int, width: int) -> Tensor:
        """Rows of places ``first`` to ``stop - 1``, each repeated for its group."""
        if width > self._table.shape[-1]:
            self._grow(1 << (width - 1).bit_length())
        whole = self._table.shape[-1]
        return self._table[first * self._group : stop * self._group, whole - width :]

    def _grow(self, width: int) -> None:
        table = torch.zeros(KV_BLOCK, width, device=self._device)
        table[:, -KV_BLOCK:] = torch.full((KV_BLOCK, KV_BLOCK), -math.inf).triu(1)
        self._table = table.repeat_interleave(self._group, 0)
