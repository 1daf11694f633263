"""What the two block drafters put on their backbone to choose a block's tokens.

DFlash2 walks the best candidates of each row by a learned score of what follows what; DSpark adds
a low-rank bias of the token before. Both choose as serving does.
"""

from __future__ import annotations

import torch
from specdec.train.drafter import Drafter
from specdec.train.drafter_shape import DrafterShape
from specdec.train.stages import project
from torch import Tensor, nn
from torch.nn import functional as F


class Selector(nn.Module):
    """score of candidate c after p: unary + <A[p] * project(h), B[c]>. B begins at zero."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.randn(shape.vocab, shape.rank) * 0.5)
        self.successor_codebook = nn.Parameter(torch.zeros(shape.vocab, shape.rank))
        self.hidden_projection = nn.Linear(shape.hidden, shape.rank, bias=False)

    def bias(
        self, previous: Tensor, hidden: Tensor, candidates: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """[N, K] for previous tokens [N], rows [N, hidden] and candidates [N, K]."""
        projected = project(hidden, self.hidden_projection.weight, dtype).float()
        left = F.embedding(previous, self.predecessor_codebook) * projected
        return (left.unsqueeze(1) * F.embedding(candidates, self.successor_codebook)).sum(-1)


class DFlash2(Drafter):
    def __init__(self, shape: DrafterShape, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(shape, dtype)
        self.candidate_selector = Selector(shape)

    def choose(self, hidden: Tensor, logits: Tensor, anchors: Tensor) -> Tensor:
        """Drafts [N, drafts] of rows [N, drafts, hidden], their logits, and anchor ids [N]."""
        unary, candidates = logits.topk(self.shape.top_k, dim=-1)
        previous, chosen = anchors, []
        for row in range(self.shape.drafts):
            bias = self.candidate_selector.bias(
                previous, hidden[:, row], candidates[:, row], self.dtype
            )
            best = (unary[:, row] + bias).argmax(-1, keepdim=True)
            previous = candidates[:, row].gather(1, best).squeeze(1)
            chosen.append(previous)
        return torch.stack(chosen, 1)


class MarkovHead(nn.Module):
    """Logits after token p gain w2 w1[p]; w2 begins at zero."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(shape.vocab, shape.rank)
        self.markov_w2 = nn.Linear(shape.rank, shape.vocab, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=0.5)
        nn.init.zeros_(self.markov_w2.weight)


class ConfidenceHead(nn.Module):
    """A logit that a draft is accepted, from its row and the previous token's Markov row."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.proj = nn.Linear(shape.hidden + shape.rank, 1)

    def forward(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        out: Tensor = self.proj(torch.cat((hidden, embedded), -1)).squeeze(-1)
        return out


class DSpark(Drafter):
    def __init__(self, shape: DrafterShape, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(shape, dtype)
        self.markov_head = MarkovHead(shape)
        self.confidence_head = ConfidenceHead(shape)

    def biased(self, previous: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [N, vocab] after the tokens [N], and their Markov rows [N, rank]."""
        embedded = self.markov_head.markov_w1(previous)
        bias = project(embedded, self.markov_head.markov_w2.weight, self.dtype).float()
        return logits + bias, embedded

    def choose(self, hidden: Tensor, logits: Tensor, anchors: Tensor) -> Tensor:
        """Drafts [N, drafts] of rows [N, drafts, hidden], their logits, and anchor ids [N]."""
        previous, chosen = anchors, []
        for row in range(self.shape.drafts):
            previous = self.biased(previous, logits[:, row])[0].argmax(-1)
            chosen.append(previous)
        return torch.stack(chosen, 1)


def make(shape: DrafterShape, dtype: torch.dtype = torch.float32) -> DFlash2 | DSpark:
    return DFlash2(shape, dtype) if shape.kind == "dflash2" else DSpark(shape, dtype)
