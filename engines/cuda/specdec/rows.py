"""What a pass of the target gives for its rows: the final hidden rows, and taps on the way."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """``hidden`` [rows, hidden]: after the final norm. ``taps`` [rows, layers * hidden]: the
    residual stream behind each of the layers that were asked for, side by side in the order of
    the asking; None if none was."""

    hidden: Tensor
    taps: Tensor | None = None

    def __len__(self) -> int:
        return len(self.hidden)

    def cut(self, first: int, stop: int) -> Rows:
        """Rows ``first`` to ``stop - 1``, as views."""
        return Rows(self.hidden[first:stop], None if self.taps is None else self.taps[first:stop])


def join(pieces: Seq[Rows]) -> Rows:
    """Pieces that follow each other, as one."""
    if len(pieces) == 1:
        return pieces[0]
    taps = [piece.taps for piece in pieces if piece.taps is not None]
    return Rows(torch.cat([piece.hidden for piece in pieces]), torch.cat(taps) if taps else None)
