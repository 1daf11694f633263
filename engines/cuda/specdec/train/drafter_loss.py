"""What the drafters are trained on.

A block's later rows matter less, as they are only reached when the ones before were right: row k
(from 1) weighs exp(-(k - 1) / gamma).

DFlash2: cross-entropy of the target's own tokens over the whole vocabulary, plus that of the
selector's decision among the top candidates, given the true token before; a row whose token is not
among them is left out of the second part. DSpark: 0.1 of that cross-entropy, 0.9 of the total
variation distance to the target's distribution, and the confidence head's binary cross-entropy to
the acceptance that this distance implies. (Sources: the DFlash and DSpark papers and their public
training code.)
"""

from __future__ import annotations

import torch
from specdec.train.drafter_heads import DFlash2, DSpark
from specdec.train.stages import project
from torch import Tensor
from torch.nn import functional as F

GAMMA = 4.0
CE_WEIGHT, DISTANCE_WEIGHT, CONFIDENCE_WEIGHT = 0.1, 0.9, 1.0


def row_weights(drafts: int, device: torch.device) -> Tensor:
    """[drafts], they sum to 1."""
    weights = torch.exp(-torch.arange(drafts, device=device) / GAMMA)
    return weights / weights.sum()


def weighted(values: Tensor, weights: Tensor) -> Tensor:
    """Mean over blocks of [N, drafts] weighted along the drafts."""
    return (values * weights).sum(1).mean()


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """[...] from logits [..., vocab] and labels [...]."""
    return logits.logsumexp(-1) - logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def dflash2_loss(
    drafter: DFlash2, hidden: Tensor, head: Tensor, tokens: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """hidden [N, drafts, hidden] of the proposing rows; tokens [N, drafts + 1], anchor first."""
    logits = project(hidden, head, drafter.dtype).float()
    labels = tokens[:, 1:]
    weights = row_weights(drafter.shape.drafts, hidden.device)
    unary = cross_entropy(logits, labels)
    top, candidates = logits.topk(drafter.shape.top_k, dim=-1)
    bias = drafter.candidate_selector.bias(
        tokens[:, :-1].flatten(), hidden.flatten(0, 1), candidates.flatten(0, 1), drafter.dtype
    )
    scores = top + bias.view_as(top)
    match = candidates == labels.unsqueeze(-1)
    found = match.any(-1).float()
    picked = scores.logsumexp(-1) - (scores * match).sum(-1)
    chosen = (picked * found * weights).sum() / (found * weights).sum().clamp_min(1e-6)
    right = scores.detach().argmax(-1, keepdim=True)
    shown = {
        "unary_loss": weighted(unary.detach(), weights),
        "selector_loss": chosen.detach(),
        "recall": found.mean(),
        "accept": expected(candidates.gather(-1, right).squeeze(-1) == labels),
    }
    return weighted(unary, weights) + chosen, shown


def dspark_loss(
    drafter: DSpark, hidden: Tensor, head: Tensor, tokens: Tensor, target: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """``target`` [N, drafts, hidden]: the target's final rows that choose the labels."""
    base = project(hidden, head, drafter.dtype).float()
    labels = tokens[:, 1:]
    biased, embedded = drafter.biased(tokens[:, :-1], base)
    weights = row_weights(drafter.shape.drafts, hidden.device)
    with torch.no_grad():
        wanted = project(target, head, drafter.dtype).float().softmax(-1)
    entropy = cross_entropy(biased, labels)
    distance = 0.5 * (biased.softmax(-1) - wanted).abs().sum(-1)
    confidence = drafter.confidence_head(hidden, embedded)
    sure = F.binary_cross_entropy_with_logits(
        confidence, (1.0 - distance).detach().clamp(0.0, 1.0), reduction="none"
    )
    parts = [weighted(part, weights) for part in (entropy, distance, sure)]
    loss = CE_WEIGHT * parts[0] + DISTANCE_WEIGHT * parts[1] + CONFIDENCE_WEIGHT * parts[2]
    shown = {
        "ce_loss": parts[0].detach(),
        "distance": parts[1].detach(),
        "confidence_loss": parts[2].detach(),
        "accept": expected(biased.detach().argmax(-1) == labels),
    }
    return loss, shown


def expected(right: Tensor) -> Tensor:
    """Mean accept length, the bonus token included, if drafts were right [N, drafts] as given the
    true tokens before them."""
    return 1.0 + right.int().cumprod(1).sum(1).float().mean()
