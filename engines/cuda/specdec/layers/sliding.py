"""A sliding attention window with sink tokens: another meaning of attention, off by default.

The row at position p sees the first ``sinks`` positions and the newest ``window``, its own among
them (source: PocketLLM's sparse attention). Rows are handled by KV blocks of absolute positions
like everywhere, over the KV rows that some row of the block can see, so a row's bits still depend
on its position alone. Nothing of the cache changes: what is out of sight is not read.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor

from specdec.layers.causal import CausalMask
from specdec.plan import KV_BLOCK

TABLES = 8  # masks of sequences that are little longer than the window, newest kept


class SlidingMask(CausalMask):
    """Additive masks over the KV rows that ``kept`` leaves of a job's."""

    def __init__(self, group: int, device: torch.device, window: int, sinks: int) -> None:
        super().__init__(group, device)
        self._reach = window
        self._sinks = sinks
        self._masks: OrderedDict[int, Tensor] = OrderedDict()

    def kept(self, width: int) -> tuple[int, int] | None:
        """(stop, first): of ``width`` KV rows those before ``stop`` and those from ``first`` on are
        read; None where all are."""
        # The first row of the block is the one that looks back farthest.
        first = max(0, width - KV_BLOCK - self._reach + 1) // KV_BLOCK * KV_BLOCK
        stop = -(-self._sinks // KV_BLOCK) * KV_BLOCK
        return (stop, first) if first > stop else None

    def cut(self, first: int, stop: int, width: int) -> Tensor:
        """Rows of places ``first`` to ``stop - 1`` over the kept rows, each for its group."""
        if width <= self._reach:
            return super().cut(first, stop, width)  # the window covers the context: nothing changes
        kept = self.kept(width)
        # Farther back than the sinks a mask depends on distances alone: one table for all.
        table = self._mask_of(width if kept is None else 0, width, kept)
        return table[first * self._group : stop * self._group]

    def _mask_of(self, key: int, width: int, kept: tuple[int, int] | None) -> Tensor:
        found = self._masks.pop(key, None)
        if found is None:
            found = self._make(width, kept)
        self._masks[key] = found
        if len(self._masks) > TABLES:
            self._masks.popitem(last=False)
        return found

    def _make(self, width: int, kept: tuple[int, int] | None) -> Tensor:
        """[KV_BLOCK * group, kept rows]: 0 where the row sees the position, else -inf."""
        columns = torch.arange(width, device=self._device)
        if kept is not None:
            columns = torch.cat((columns[: kept[0]], columns[kept[1] :]))
        rows = torch.arange(width - KV_BLOCK, width, device=self._device).unsqueeze(1)
        near = (columns <= rows) & (columns > rows - self._reach)
        seen = near | ((columns < self._sinks) & (columns <= rows))
        table = torch.zeros(seen.shape, device=self._device).masked_fill_(~seen, -math.inf)
        return table.repeat_interleave(self._group, 0)
