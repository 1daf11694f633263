"""The k best ids of every row, in an order that no split of the vocabulary can change.

Higher scores first; of equal ones the lower id first. Both decide the set as well: where equal
scores straddle the k-th place, the lowest ids are in. So the best k of the ranks' best k are the
best k of the whole row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.parallel.ranks import Ranks


def top_k(scores: Tensor, count: int, first_id: int = 0) -> tuple[Tensor, Tensor]:
    """(scores, ids) of the ``count`` best columns of finite [rows, columns]: [rows, count] each.

    Column j has the id ``first_id`` + j. Fewer columns than ``count``: all of them.
    """
    count = min(count, scores.shape[1])
    ids = [_best_of_row(row, count) for row in scores]
    found = torch.stack(ids) if ids else scores.new_empty((0, count), dtype=torch.int64)
    return scores.gather(1, found), found + first_id


def merged_top_k(scores: Tensor, ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` best of candidates [rows, candidates] whose ids rise among equal scores."""
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :count]
    return scores.gather(1, order), ids.gather(1, order)


def global_top_k(scores: Tensor, count: int, ranks: Ranks | None) -> tuple[Tensor, Tensor]:
    """``top_k`` of the whole row when each rank has an equal share of its columns, in order.

    ``scores``: this rank's [rows, columns], FP32 or narrower, finite. One collective. Every rank
    gets the same (scores, ids).
    """
    if ranks is None:
        return top_k(scores, count)
    mine, ids = top_k(scores, count, ranks.rank * scores.shape[1])
    # FP64 holds FP32 scores and ids below 2**53 exactly, so both travel together.
    packed = torch.stack((mine.to(torch.float64), ids.to(torch.float64)), 1)
    # [ranks, rows, 2, k] to [rows, 2, ranks * k]; ids of a later rank are all higher.
    every = ranks.gather(packed).movedim(0, 2).flatten(2)
    best, where = merged_top_k(every[:, 0], every[:, 1], count)
    return best.to(scores.dtype), where.to(torch.int64)


def _best_of_row(row: Tensor, count: int) -> Tensor:
    """Which of equal scores ``torch.topk`` takes is not defined; the lowest score taken is."""
    least = row.topk(count).values[-1]
    candidates = (row >= least).nonzero().squeeze(1)
    order = row[candidates].argsort(descending=True, stable=True)[:count]
    return candidates[order]
