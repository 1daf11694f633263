"""One rank's view of the others: copies travel between ranks, sums never do.

Every collective is a gather of equal pieces in the order of ranks. What a rank computes from the
gathered pieces is what one rank alone would compute, so nothing depends on the order in which
messages arrive or on how a library would add them up (``ARITHMETIC.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """``rank`` of ``size``. ``collectives``: a ``torch.distributed`` process group of them.

    All ranks call the same methods in the same order, or they wait for each other until the group's
    timeout.
    """

    rank: int
    size: int
    collectives: Any

    def gather(self, mine: Tensor) -> Tensor:
        """[...] of every rank, equal in shape: [size, ...]."""
        found = mine.new_empty((self.size, *mine.shape))
        self.collectives._allgather_base(found, mine.contiguous().unsqueeze(0)).wait()
        return found

    def join(self, mine: Tensor) -> Tensor:
        """[rows, columns] of every rank side by side: [rows, size * columns]."""
        return self.gather(mine).transpose(0, 1).reshape(mine.shape[0], -1)

    def abort(self) -> None:
        """Break off what is under way, from any thread: the others will not come."""
        self.collectives.abort()

    def all_true(self, mine: bool, device: torch.device) -> bool:
        """Whether it holds on every rank."""
        return self.least(float(mine), device) == 1.0

    def least(self, mine: float, device: torch.device) -> float:
        """The smallest of all ranks' numbers; not a number if one is not."""
        return float(self.gather(torch.tensor([mine], dtype=torch.float64, device=device)).min())

    def largest(self, mine: float, device: torch.device) -> float:
        """The largest of all ranks' numbers; not a number if one is not."""
        return float(self.gather(torch.tensor([mine], dtype=torch.float64, device=device)).max())


def span(ranks: Ranks | None, whole: int) -> tuple[int, int]:
    """This rank's [start, stop) of ``whole`` things that ranks divide evenly."""
    if ranks is None:
        return 0, whole
    assert whole % ranks.size == 0, f"{whole} do not divide among {ranks.size} ranks"
    share = whole // ranks.size
    return ranks.rank * share, (ranks.rank + 1) * share
