"""From logits to a token: the filtered distribution, and draws that a retraction repeats.

Every random number is a pure function of the request's seed, the token's absolute position and
what the number is for, so nothing depends on the order in which requests are served.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from specdec.request import SamplingParams, TokenLogprob

_MASK = (1 << 64) - 1


class Purpose(IntEnum):
    """What a random number decides."""

    TARGET = 0  # the target's own token, or the residual's
    ACCEPT = 1  # whether a draft is kept
    DRAFT = 2  # the draft


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A number in [0, 1) from (seed, position, purpose): SplitMix64's finaliser, twice."""
    state = _finalise((seed & _MASK) ^ _finalise(position * 4 + purpose + 1))
    return (state >> 11) / (1 << 53)


def _finalise(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def distribution(logits: Tensor, params: SamplingParams) -> Tensor:
    """[vocabulary] logits to the probabilities that are sampled from, FP64, summing to one.

    Temperature first, then top-k, top-p (the smallest set of most probable tokens that reaches p)
    and min-p (relative to the most probable), each on the tempered distribution; then rescaled.
    """
    probs = torch.softmax(logits.to(torch.float64) / params.temperature, -1)
    if params.top_k <= 0 and params.top_p >= 1.0 and params.min_p <= 0.0:
        return probs
    ordered, order = probs.sort(descending=True, stable=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if params.top_k > 0:
        keep[params.top_k :] = False
    if params.top_p < 1.0:
        keep &= ordered.cumsum(0) - ordered < params.top_p
    keep &= ordered >= params.min_p * ordered[0]
    keep[0] = True
    kept = torch.zeros_like(probs)
    kept[order] = torch.where(keep, ordered, torch.zeros_like(ordered))
    return kept / kept.sum()


def draw(weights: Tensor, number: float) -> int:
    """The token at quantile ``number`` of non-negative weights with a positive sum."""
    edges = weights.cumsum(0)
    threshold = torch.tensor(number, dtype=edges.dtype, device=edges.device) * edges[-1]
    token = int(torch.searchsorted(edges, threshold, right=True))
    # Rounding may put the threshold on the last edge, behind the last token with weight.
    return min(token, int(weights.nonzero()[-1]))


def token_logprob(logits: Tensor, token: int, top: int) -> TokenLogprob:
    """The token's log-probability under [vocabulary] logits, and the ``top`` most probable ids."""
    logs = torch.log_softmax(logits.to(torch.float32), -1)
    values, ids = logs.topk(min(top, logs.numel()))
    best = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprob(float(logs[token]), best)
