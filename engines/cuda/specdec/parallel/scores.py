"""Logits of some rows, wherever the vocabulary lies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.parallel.ranks import Ranks
from specdec.parallel.topk import global_top_k


@dataclass(frozen=True)
class Scores:
    """``local``: [rows, this rank's share of the vocabulary], the shares in the order of ranks.

    Under several ranks each method is one collective, whatever the number of rows, and gives every
    rank the same answer: the one that a single rank gives.
    """

    local: Tensor
    ranks: Ranks | None = None

    def whole(self) -> Tensor:
        """[rows, vocabulary]."""
        return self.local if self.ranks is None else self.ranks.join(self.local)

    def best(self) -> tuple[list[bool], list[int]]:
        """For each row: are all its logits finite, and the id of the largest (the lowest such)."""
        finite = torch.isfinite(self.local).all(1)
        best = self.local.argmax(1)
        if self.ranks is None:
            return finite.tolist(), best.tolist()
        value = self.local.gather(1, best.unsqueeze(1)).squeeze(1)
        ids = best + self.ranks.rank * self.local.shape[1]
        # FP64 holds FP32 values and ids below 2**53 exactly, so all three travel together.
        every = self.ranks.gather(torch.stack([t.to(torch.float64) for t in (finite, value, ids)]))
        first = every[:, 1].argmax(0, keepdim=True)
        winner = every[:, 2].gather(0, first).squeeze(0).to(torch.int64)
        return (every[:, 0] == 1.0).all(0).tolist(), winner.tolist()

    def top(self, count: int) -> tuple[Tensor, Tensor]:
        """(logits, ids) of the ``count`` best of each row, [rows, count]; equal ones by lowest id.

        The logits must be finite.
        """
        return global_top_k(self.local, count, self.ranks)
