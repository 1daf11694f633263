"""The gated delta rule over whole sequences, differentiable, in chunks of 64 tokens.

Within a chunk the delta updates are folded into a few matrix products (the WY form of the
DeltaNet papers); between chunks the state obeys a linear recurrence ``S' = M S + N`` whose
matrices are known in advance, so the only sequential work is one product per chunk. That keeps
the code small enough to compile in seconds and fast at any sequence length.

Shapes: ``C`` chunks (sequence-major: chunk ``b * n + c`` is chunk ``c`` of sequence ``b``),
``H`` value heads, ``K`` key heads, ``L`` = 64 tokens a chunk, ``D`` head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK_TOKENS = 64
_BASE_TOKENS = 16


def unit_lower_inverse(strict: Tensor) -> Tensor:
    """Inverse of ``I + strict`` for strictly lower triangular ``strict`` [..., 64, 64].

    Diagonal blocks of 16 by repeated squaring, then two exact block merges. Squaring the whole
    matrix instead would overflow FP32 where keys repeat (binomial growth).
    """
    length = strict.shape[-1]
    eye = torch.eye(_BASE_TOKENS, dtype=strict.dtype, device=strict.device)
    inverse = torch.zeros_like(strict)
    starts = range(0, length, _BASE_TOKENS)
    blocks = torch.stack(
        [strict[..., s : s + _BASE_TOKENS, s : s + _BASE_TOKENS] for s in starts], dim=-3
    )
    result, power, reach = eye - blocks, blocks @ blocks, 2
    while True:
        result = result + result @ power
        reach *= 2
        if reach >= _BASE_TOKENS:
            break
        power = power @ power
    for index, start in enumerate(starts):
        stop = start + _BASE_TOKENS
        inverse[..., start:stop, start:stop] = result[..., index, :, :]
    size = _BASE_TOKENS
    while size < length:
        for start in range(0, length, 2 * size):
            mid, stop = start + size, start + 2 * size
            left = inverse[..., start:mid, start:mid]
            right = inverse[..., mid:stop, mid:stop]
            inverse[..., mid:stop, start:mid] = -(right @ strict[..., mid:stop, start:mid] @ left)
        size *= 2
    return inverse


class _UnitLowerInverse(torch.autograd.Function):
    """The inverse in full FP32 (TF32 loses too much here), with its two-product gradient."""

    @staticmethod
    def forward(ctx: Any, strict: Tensor) -> Tensor:
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            inverse = unit_lower_inverse(strict)
        finally:
            torch.set_float32_matmul_precision(precision)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        transposed = inverse.mT
        grad: Tensor = -(transposed @ grads[0] @ transposed).tril(-1)
        return grad


class _ChunkScan(torch.autograd.Function):
    """States at the start of every chunk: ``S[0] = 0``, ``S[c+1] = M[c] S[c] + N[c]``.

    ``M``, ``N``: [n, G, D, D], chunk-major. Returns [n, G, D, D].
    """

    @staticmethod
    def forward(ctx: Any, transition: Tensor, update: Tensor) -> Tensor:
        states = torch.empty_like(update)
        states[0].zero_()
        for chunk in range(update.shape[0] - 1):
            torch.baddbmm(update[chunk], transition[chunk], states[chunk], out=states[chunk + 1])
        ctx.save_for_backward(transition, states)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        transition, states = ctx.saved_tensors
        local = grads[0].contiguous()
        total = torch.empty_like(local)
        total[-1].zero_()  # the state after the last chunk is not used
        for chunk in range(local.shape[0] - 1, 0, -1):
            torch.baddbmm(local[chunk], transition[chunk].mT, total[chunk], out=total[chunk - 1])
            # total[c] holds the gradient of S[c+1]; position c-1 gets that of S[c].
        return total @ states.mT, total


def l2_normalise(x: Tensor) -> Tensor:
    """Unit length over the last dimension, epsilon 1e-6 inside the root as upstream has it."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def chunk_operands(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor
) -> tuple[Tensor, ...]:
    """First half of the chunk arithmetic.

    Args: query, key [N, K, D]; value [N, H, D]; log_decay, beta [N, H], FP32, N a multiple of 64.
    Returns (query, key, value, beta [C,H,L], cumulative log decay [C,H,L], inner attention
    [C,H,L,L], strict lower system [C,H,L,L]); query and key are normalised, [C,K,L,D].
    """
    heads, key_heads, width = value.shape[1], key.shape[1], key.shape[2]

    def chunked(x: Tensor) -> Tensor:
        return x.float().reshape(-1, CHUNK_TOKENS, *x.shape[1:]).transpose(1, 2)

    query = l2_normalise(chunked(query)) * width**-0.5
    key = l2_normalise(chunked(key))
    value, beta = chunked(value), chunked(beta)
    cumulative = chunked(log_decay).cumsum(-1)
    pair = cumulative.unsqueeze(-1) - cumulative.unsqueeze(-2)
    upper = torch.ones(CHUNK_TOKENS, CHUNK_TOKENS, dtype=torch.bool, device=pair.device).triu(1)
    decay = pair.masked_fill(upper, float("-inf")).exp()
    group = heads // key_heads
    overlap = (key @ key.mT).repeat_interleave(group, 1)
    strict = (overlap * decay * beta.unsqueeze(-1)).tril(-1)
    inner = (query @ key.mT).repeat_interleave(group, 1) * decay
    return query, key, value, beta, cumulative, inner, strict


def chunk_transitions(
    key: Tensor, value: Tensor, beta: Tensor, cumulative: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Second half: new values ``U``, reads ``W``, and the matrices of ``S' = M S + N``."""
    key = key.repeat_interleave(value.shape[1] // key.shape[1], 1)
    last = cumulative[..., -1:]
    new_values = inverse @ (value * beta.unsqueeze(-1))
    reads = inverse @ (key * (beta * cumulative.exp()).unsqueeze(-1))
    kept = key * (last - cumulative).exp().unsqueeze(-1)
    eye = torch.eye(key.shape[-1], dtype=key.dtype, device=key.device)
    transition = eye * last.exp().unsqueeze(-1) - kept.mT @ reads
    return new_values, reads, transition, kept.mT @ new_values


def chunk_readout(
    query: Tensor,
    cumulative: Tensor,
    inner: Tensor,
    new_values: Tensor,
    reads: Tensor,
    states: Tensor,
) -> Tensor:
    """Outputs [N, H, D] from the states at chunk starts [C, H, D, D]."""
    query = query.repeat_interleave(states.shape[1] // query.shape[1], 1)
    across = (query * cumulative.exp().unsqueeze(-1)) @ states
    within = inner @ (new_values - reads @ states)
    return (across + within).transpose(1, 2).flatten(0, 1)


def scan_states(transition: Tensor, update: Tensor, sequences: int) -> Tensor:
    """States at chunk starts for ``sequences`` independent sequences, [C, H, D, D] each way."""
    chunks, heads, width = transition.shape[0] // sequences, transition.shape[1], update.shape[-1]

    def major(x: Tensor) -> Tensor:
        x = x.view(sequences, chunks, heads, width, width).transpose(0, 1)
        return x.reshape(chunks, sequences * heads, width, width)

    states: Tensor = _ChunkScan.apply(major(transition), major(update))  # type: ignore[no-untyped-call]
    states = states.view(chunks, sequences, heads, width, width).transpose(0, 1)
    return states.reshape(sequences * chunks, heads, width, width)


def solve(strict: Tensor) -> Tensor:
    """Differentiable ``(I + strict)^-1``."""
    inverse: Tensor = _UnitLowerInverse.apply(strict)  # type: ignore[no-untyped-call]
    return inverse


def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, sequences: int
) -> Tensor:
    """All steps together; ``sequences`` equal runs of tokens start from an empty state each.

    Args as :func:`chunk_operands`. Returns [N, H, D] in FP32. Pads nothing: N / sequences must be
    a multiple of 64.
    """
    query, key, value, beta, cumulative, inner, strict = chunk_operands(
        query, key, value, log_decay, beta
    )
    new_values, reads, transition, update = chunk_transitions(
        key, value, beta, cumulative, solve(strict)
    )
    states = scan_states(transition, update, sequences)
    return chunk_readout(query, cumulative, inner, new_values, reads, states)


def pad_to_chunks(x: Tensor) -> Tensor:
    """Right-pad the token axis (1) of [B, T, ...] to a multiple of the chunk."""
    missing = -x.shape[1] % CHUNK_TOKENS
    return F.pad(x, (0, 0) * (x.ndim - 2) + (0, missing)) if missing else x
