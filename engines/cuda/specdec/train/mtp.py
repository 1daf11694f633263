"""The MTP head, unrolled over several draft depths against the target's own distribution.

Chain ``i`` starts from the target's final hidden row of position ``i`` and the embedding of the
token after it; each further depth feeds back the head's normalised output and the next token.
At inference the head's KV rows up to the anchor come from true hidden rows and only the chain's
own rows are drafts, so attention here is the same: a chain at depth ``j`` sees the depth-1 rows
up to ``i`` and its own rows of depths 2..j.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from specdec.train.model import HybridModel, Layer, ZeroCentredNorm, initialise
from specdec.train.shape import ModelShape
from specdec.train.stages import Stages, causal_attention, project, rms_norm
from torch import Tensor, nn
from torch.nn import functional as F


class MtpHead(nn.Module):
    """Everything under ``mtp.`` in the checkpoint."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.pre_fc_norm_embedding = ZeroCentredNorm(shape.hidden)
        self.pre_fc_norm_hidden = ZeroCentredNorm(shape.hidden)
        self.layers = nn.ModuleList([Layer(shape, full=True)])
        self.norm = ZeroCentredNorm(shape.hidden)
        initialise(self, shape)


def mix_inputs(
    embedding: Tensor,
    hidden: Tensor,
    embedding_norm: Tensor,
    hidden_norm: Tensor,
    fc: Tensor,
    eps: float,
    dtype: torch.dtype,
) -> Tensor:
    """fc over [embedding, hidden], each normalised first; [N, hidden] in FP32."""
    pair = (rms_norm(embedding, embedding_norm, eps), rms_norm(hidden, hidden_norm, eps))
    return project(torch.cat(pair, dim=-1), fc, dtype).float()


def chain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    own_key: Tensor,
    own_value: Tensor,
    live: Tensor,
    first: int,
) -> Tensor:
    """Attention of chains over shared rows (causal) and over their own draft rows.

    query [B, W, heads, D], chain ``w`` starts at position ``first + w``; key, value
    [B, T, kv, D]; own_key, own_value [B, W, slots, kv, D], of which ``live`` [slots] says those
    in use (a fixed number of slots, so that every depth has the same shapes). Returns
    [B, W, heads, D].
    """
    batch, window, heads, width = query.shape
    kv, length = key.shape[2], key.shape[1]
    query = query.view(batch, window, kv, heads // kv, width) * width**-0.5
    shared = torch.einsum("bwkgd,btkd->bkgwt", query, key).float()
    start = torch.arange(first, first + window, device=query.device).unsqueeze(-1)
    hidden = torch.arange(length, device=query.device) > start
    shared = shared.masked_fill(hidden, float("-inf"))
    own = torch.einsum("bwkgd,bwjkd->bkgwj", query, own_key).float()
    own = own.masked_fill(~live, float("-inf"))
    # Two softmax parts joined by their normalisers: the big one is never copied.
    shared_norm = shared.logsumexp(-1, keepdim=True)
    norm = torch.logaddexp(shared_norm, own.logsumexp(-1, keepdim=True))
    from_shared = torch.einsum("bkgwt,btkd->bwkgd", (shared - norm).exp().to(value.dtype), value)
    from_own = torch.einsum("bkgwj,bwjkd->bwkgd", (own - norm).exp().to(value.dtype), own_value)
    return (from_shared + from_own).flatten(2, 3)


def agreement_loss(
    out: Tensor, head: Tensor, target_logits: Tensor, valid: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(loss, share of equal argmax) of MTP rows [N, hidden] against target logits [N, vocab].

    Half cross-entropy to the target's distribution, half to its argmax: the first serves
    sampling, the second greedy decoding.
    """
    logits = project(out, head, dtype).float()
    target_logits = target_logits.float()
    best = target_logits.argmax(-1)
    log_norm = logits.logsumexp(-1)
    soft = log_norm - (target_logits.softmax(-1) * logits).sum(-1)
    hard = log_norm - logits.gather(-1, best.unsqueeze(-1)).squeeze(-1)
    weight = valid.float() / valid.float().sum().clamp_min(1.0)
    agree = ((logits.argmax(-1) == best).float() * weight).sum()
    return ((0.5 * soft + 0.5 * hard) * weight).sum(), agree


@dataclass(frozen=True)
class MtpStages:
    """The fused stages of one depth, compiled or plain."""

    mix: Callable[..., Tensor]
    attend: Callable[..., Tensor]
    loss: Callable[..., tuple[Tensor, Tensor]]

    @classmethod
    def make(cls, compiled: bool) -> MtpStages:
        if not compiled:
            return cls(mix_inputs, chain_attention, agreement_loss)
        return cls(
            torch.compile(mix_inputs, dynamic=False),
            torch.compile(chain_attention, dynamic=False),
            torch.compile(agreement_loss, dynamic=False),
        )


@dataclass(frozen=True)
class MtpResult:
    """Loss per depth (FP32 scalars) and the share of chains whose argmax equals the target's."""

    losses: list[Tensor]
    agreement: list[Tensor]


def unroll(
    target: HybridModel,
    head: MtpHead,
    ids: Tensor,
    positions: Tensor,
    *,
    depths: int,
    first: int,
    run: Stages,
    mtp_run: MtpStages,
    target_run: Stages | None = None,
) -> MtpResult:
    """Losses of ``depths`` recursive drafts; the target is not changed.

    ids [B, T+1]; positions [B, T]. Depth 1 trains on every position, deeper ones on chains that
    start at ``first`` or later (long contexts: only a window, to bound memory).
    """
    shape, dtype = target.shape, target.dtype
    batch, length = positions.shape
    with torch.no_grad():
        hidden = target.hidden(ids[:, :-1], positions, target_run or run)
        target_logits = target.logits(hidden).view(batch, length, -1)
    embeddings = target.model.embed_tokens.weight.detach()
    layer = head.layers[0]
    assert isinstance(layer, Layer)
    losses: list[Tensor] = []
    agreement: list[Tensor] = []
    previous = hidden.view(batch, length, -1)
    shared: tuple[Tensor, Tensor] | None = None
    own: list[tuple[Tensor, Tensor]] = []
    begin = 0
    for depth in range(1, depths + 1):
        if depth == 2:
            begin = first
            previous = previous[:, first:]
        window = length - begin
        # Beyond the end the roll brings wrong rows in; `valid` leaves them out of the loss.
        tokens = ids.roll(-depth, 1)[:, begin:length]
        cos, sin = target.rotary((positions[:, begin:] + (depth - 1)).flatten())
        x = mtp_run.mix(
            F.embedding(tokens.flatten(), embeddings),
            previous.flatten(0, 1),
            head.pre_fc_norm_embedding.weight,
            head.pre_fc_norm_hidden.weight,
            head.fc.weight,
            shape.norm_eps,
            dtype,
        )
        query, key, value, gate = layer.attention_inputs(x, cos, sin, run, dtype)
        rows = (key.unflatten(0, (batch, window)), value.unflatten(0, (batch, window)))
        if shared is None:
            out = causal_attention(query, key, value, batch)
            shared = rows
        else:
            own.append(rows)
            padded = [torch.zeros_like(rows[0])] * (depths - 1 - len(own))
            own_key, own_value = (
                torch.stack([*part, *padded], dim=2) for part in zip(*own, strict=True)
            )
            live = torch.arange(depths - 1, device=ids.device) < len(own)
            query = query.unflatten(0, (batch, window))
            out = mtp_run.attend(query, *shared, own_key, own_value, live, begin).flatten(0, 1)
        x = layer.attention_output(x, out, gate, run, dtype)
        normed = rms_norm(x, head.norm.weight, shape.norm_eps)
        previous = normed.view(batch, window, -1)
        start = torch.arange(begin, length, device=ids.device)
        valid = (start + depth < length).expand(batch, window).flatten()
        wanted = target_logits.roll(-depth, 1)[:, begin:].flatten(0, 1)
        loss, agree = mtp_run.loss(normed, embeddings, wanted, valid, dtype)
        losses.append(loss)
        agreement.append(agree)
    return MtpResult(losses, agreement)
