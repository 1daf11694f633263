"""Blocks out of continuations: which anchors, and what the drafter sees of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from specdec.train.continuations import Round
from specdec.train.drafter import Drafter
from specdec.train.drafter_heads import DFlash2, DSpark
from specdec.train.drafter_loss import dflash2_loss, dspark_loss
from specdec.train.drafter_shape import DrafterShape
from specdec.train.model import HybridModel
from specdec.train.stages import Stages
from torch import Tensor
from torch.nn import functional as F

BLOCK_REACH = 8  # rows that the longer of the two blocks needs from its anchor on


@dataclass(frozen=True)
class Seen:
    """What the frozen target makes of B sequences: its final rows [B, T, hidden], the residual
    rows [B, T, hidden] of tapped layers, ids and positions [B, T]."""

    ids: Tensor
    positions: Tensor
    final: Tensor
    taps: dict[int, Tensor]

    def features(self, shape: DrafterShape) -> Tensor:
        """[B, T, taps * hidden]."""
        return torch.cat([self.taps[layer] for layer in shape.taps], -1)


@torch.no_grad()
def look(model: HybridModel, ids: Tensor, positions: Tensor, run: Stages, taps: set[int]) -> Seen:
    """One pass of the target over whole sequences, T a multiple of 64."""
    final, rows = model.tapped(ids, positions, run, taps)

    def split(x: Tensor) -> Tensor:
        return x.view(*ids.shape, -1)

    kept = {layer: split(x).to(model.dtype) for layer, x in rows.items()}
    return Seen(ids.long(), positions.long(), split(final), kept)


def draw_anchors(
    batch: Round, count: int, most: int, generator: torch.Generator | None = None
) -> Tensor:
    """[B, count] anchors, spread evenly and jittered over the first ``most`` tokens that the
    target wrote."""
    last = batch.ids.shape[1] - BLOCK_REACH
    room = (last - batch.starts).clamp(max=most).float().unsqueeze(1)
    jitter = torch.rand(len(batch.starts), count, generator=generator)
    offsets = ((torch.arange(count) + jitter) / count * room).long()
    return batch.starts.long().unsqueeze(1) + torch.minimum(offsets, room.long() - 1)


def block_rows(drafter: Drafter, embedding: Tensor, seen: Seen, anchors: Tensor) -> Tensor:
    """Final-normalised rows [B, A, R, hidden] of the blocks at ``anchors`` [B, A]."""
    shape = drafter.shape
    ids = torch.full(
        (*anchors.shape, shape.block), shape.mask_token, dtype=torch.long, device=anchors.device
    )
    ids[..., 0] = seen.ids.gather(1, anchors)
    rows: Tensor = drafter(
        seen.features(shape), seen.positions, F.embedding(ids, embedding), anchors
    )
    return rows


def pick(rows: Tensor, index: Tensor) -> Tensor:
    """rows [B, T, ...] at index [B, A, K]: [B, A, K, ...]."""
    batch = torch.arange(len(rows), device=rows.device).view(-1, 1, 1)
    return rows[batch, index]


def loss_of(
    drafter: DFlash2 | DSpark, embedding: Tensor, seen: Seen, anchors: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Training loss of the blocks at ``anchors`` and figures to show."""
    shape = drafter.shape
    hidden = block_rows(drafter, embedding, seen, anchors)[..., shape.first :, :].flatten(0, 1)
    steps = torch.arange(shape.drafts + 1, device=anchors.device)
    index = anchors.unsqueeze(-1) + steps
    tokens = pick(seen.ids, index).flatten(0, 1)
    if isinstance(drafter, DFlash2):
        return dflash2_loss(drafter, hidden, embedding, tokens)
    target = pick(seen.final, index[..., :-1]).flatten(0, 1)
    return dspark_loss(drafter, hidden, embedding, tokens, target)


@torch.no_grad()
def drafts_at(drafter: DFlash2 | DSpark, embedding: Tensor, seen: Seen, anchors: Tensor) -> Tensor:
    """The drafts [B, A, drafts] that serving would propose at ``anchors``."""
    shape = drafter.shape
    hidden = block_rows(drafter, embedding, seen, anchors)[..., shape.first :, :].flatten(0, 1)
    logits = torch.nn.functional.linear(
        hidden.to(drafter.dtype), embedding.to(drafter.dtype)
    ).float()
    ids = seen.ids.gather(1, anchors).flatten()
    return drafter.choose(hidden, logits, ids).view(*anchors.shape, -1)
