"""DFlash2's candidate selector: a walk through the best ids of each position.

    score of candidate c after p = unary(c) + <A[p] * project(h), B[c]>

``A`` and ``B`` are codebooks of rank r with a row for every id, h the position's draft row. The
anchor comes before the first position; each later one follows what was chosen there.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from specdec.layers.linear import Products, Projection
from specdec.request import Sequence
from specdec.sampling import Purpose, distribution, draw, uniform


class Selector:
    """``predecessors``, ``successors``: [vocabulary, rank]; ``projection``: [rank, hidden]."""

    def __init__(
        self, predecessors: Tensor, successors: Tensor, projection: Tensor, products: Products
    ) -> None:
        self._predecessors = predecessors
        self._successors = successors
        self._project = Projection(projection, products)

    def project(self, hidden: Tensor) -> Tensor:
        """Draft rows [rows, hidden] to [rows, rank]."""
        return self._project(hidden)

    def scores(
        self, before: Tensor, projected: Tensor, unary: Tensor, candidates: Tensor
    ) -> Tensor:
        """One position of several sequences: ids before it [n], rows [n, rank], the candidates'
        unary scores and ids [n, k]; [n, k]."""
        scaled = self._predecessors[before] * projected
        return unary + (scaled.unsqueeze(1) * self._successors[candidates]).sum(-1)


class Walk:
    """One walk of several sequences. Equal scores go to the earlier candidate, which is the one
    with the higher unary score, or at equal ones the lower id."""

    def __init__(self, selector: Selector, seqs: Seq[Sequence], vocab: int) -> None:
        self._selector = selector
        self._seqs = seqs
        self._vocab = vocab
        self.tokens: list[list[int]] = [[] for _ in seqs]
        self.proposals: list[list[Tensor]] = [[] for _ in seqs]

    def step(
        self, active: Seq[int], before: Tensor, projected: Tensor, unary: Tensor, ids: Tensor
    ) -> Tensor:
        """Choose the next id of the sequences ``active``, whose rows these are; [n] ids."""
        scores = self._selector.scores(before, projected, unary, ids)
        places = scores.argmax(1)
        for row, i in enumerate(active):
            if self._seqs[i].params.temperature > 0:
                places[row] = self._draw(i, scores[row], ids[row])
        chosen = ids.gather(1, places.unsqueeze(1)).squeeze(1)
        for i, token in zip(active, chosen.tolist(), strict=True):
            self.tokens[i].append(token)
        return chosen

    def _draw(self, i: int, scores: Tensor, ids: Tensor) -> int:
        """A candidate drawn by its scores; the proposal is zero for every other id."""
        seq = self._seqs[i]
        probs = distribution(scores, seq.params)
        position = seq.total_tokens + len(self.tokens[i])
        place = draw(probs, uniform(seq.seed, position, Purpose.DRAFT))
        whole = torch.zeros(self._vocab, dtype=probs.dtype, device=probs.device)
        self.proposals[i].append(whole.index_copy_(0, ids, probs))
        return place
