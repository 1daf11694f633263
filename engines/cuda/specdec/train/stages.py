"""The fused stages of a layer: plain functions of tensors, so that each compiles once.

Tokens of all sequences of a batch travel as one axis ``N = B * T``; ``offset`` [N] is a token's
index in its sequence. The stages see the same shapes whatever the split of N into sequences, and
so serve every context length with one compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from specdec.train import delta
from specdec.train.shape import ModelShape
from torch import Tensor
from torch.nn import functional as F


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Zero-centred RMS norm (``1 + weight``) in FP32."""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1.0 + weight.float())


def project(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    return F.linear(x.to(dtype), weight.to(dtype))


def causal_conv(x: Tensor, weight: Tensor, offset: Tensor) -> Tensor:
    """Depthwise causal convolution of [N, channels] that never crosses a sequence's start.

    ``offset`` [N] is each token's index in its sequence; ``weight`` [channels, 1, taps].
    """
    taps = weight.shape[-1]
    x = x.float()
    out = x * weight[:, 0, taps - 1].float()
    for back in range(1, taps):
        shifted = F.pad(x[:-back], (0, 0, back, 0))
        shifted = shifted * (offset >= back).unsqueeze(-1)
        out = out + shifted * weight[:, 0, taps - 1 - back].float()
    return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half rotation of the first ``2 * cos.shape[-1]`` channels of [N, heads, width]."""
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned = (first * cos - second * sin, second * cos + first * sin, rest)
    return torch.cat(turned, dim=-1)


def linear_front(
    x: Tensor,
    offset: Tensor,
    norm: Tensor,
    in_qkv: Tensor,
    in_z: Tensor,
    in_b: Tensor,
    in_a: Tensor,
    conv: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    shape: ModelShape,
    dtype: torch.dtype,
) -> tuple[Tensor, ...]:
    h = rms_norm(x, norm, shape.norm_eps)
    mixed = F.silu(causal_conv(project(h, in_qkv, dtype), conv, offset))
    width, key_dim = shape.linear_head_dim, shape.linear_key_dim
    query, key, value = mixed.split([key_dim, key_dim, shape.linear_value_dim], dim=-1)
    beta = project(h, in_b, dtype).float().sigmoid()
    gate = F.softplus(project(h, in_a, dtype).float() + dt_bias.float())
    operands = delta.chunk_operands(
        query.unflatten(-1, (-1, width)),
        key.unflatten(-1, (-1, width)),
        value.unflatten(-1, (-1, width)),
        -a_log.float().exp() * gate,
        beta,
    )
    return (*operands, project(h, in_z, dtype))


def linear_back(
    x: Tensor,
    query: Tensor,
    cumulative: Tensor,
    inner: Tensor,
    new_values: Tensor,
    reads: Tensor,
    states: Tensor,
    z: Tensor,
    gate_norm: Tensor,
    out_proj: Tensor,
    post_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    shape: ModelShape,
    dtype: torch.dtype,
) -> Tensor:
    out = delta.chunk_readout(query, cumulative, inner, new_values, reads, states)
    out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + shape.norm_eps)
    out = out * gate_norm.float() * F.silu(z.float().unflatten(-1, (-1, shape.linear_head_dim)))
    x = x + project(out.flatten(1), out_proj, dtype).float()
    return feed_forward(x, post_norm, gate, up, down, shape, dtype)


def attention_front(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    norm: Tensor,
    q_proj: Tensor,
    k_proj: Tensor,
    v_proj: Tensor,
    q_norm: Tensor,
    k_norm: Tensor,
    shape: ModelShape,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    h = rms_norm(x, norm, shape.norm_eps)
    mixed = project(h, q_proj, dtype).unflatten(-1, (shape.heads, 2 * shape.head_dim))
    query, gate = mixed.split(shape.head_dim, dim=-1)
    key = project(h, k_proj, dtype).unflatten(-1, (shape.kv_heads, shape.head_dim))
    value = project(h, v_proj, dtype).unflatten(-1, (shape.kv_heads, shape.head_dim))
    query = rotate(rms_norm(query, q_norm, shape.norm_eps), cos, sin).to(dtype)
    key = rotate(rms_norm(key, k_norm, shape.norm_eps), cos, sin).to(dtype)
    return query, key, value, gate


def attention_back(
    x: Tensor,
    out: Tensor,
    gate_values: Tensor,
    o_proj: Tensor,
    post_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    shape: ModelShape,
    dtype: torch.dtype,
) -> Tensor:
    out = out.float() * gate_values.float().sigmoid()
    x = x + project(out.flatten(1), o_proj, dtype).float()
    return feed_forward(x, post_norm, gate, up, down, shape, dtype)


def feed_forward(
    x: Tensor,
    norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    shape: ModelShape,
    dtype: torch.dtype,
) -> Tensor:
    h = rms_norm(x, norm, shape.norm_eps)
    h = F.silu(project(h, gate, dtype)) * project(h, up, dtype)
    return x + project(h, down, dtype).float()


def causal_attention(query: Tensor, key: Tensor, value: Tensor, sequences: int) -> Tensor:
    """Plain causal attention of [N, heads, width] over ``sequences`` equal runs."""

    def split(x: Tensor) -> Tensor:
        return x.view(sequences, -1, *x.shape[1:]).transpose(1, 2)

    out = F.scaled_dot_product_attention(
        split(query), split(key), split(value), is_causal=True, enable_gqa=True
    )
    return out.transpose(1, 2).flatten(0, 1)


@dataclass
class Stages:
    """The five fused stages, compiled or plain."""

    linear_front: Callable[..., tuple[Tensor, ...]]
    transitions: Callable[..., tuple[Tensor, ...]]
    linear_back: Callable[..., Tensor]
    attention_front: Callable[..., tuple[Tensor, ...]]
    attention_back: Callable[..., Tensor]


def stages(compiled: bool) -> Stages:
    """Plain stages, or each compiled by itself (seconds, not minutes: no layer is unrolled)."""
    if not compiled:
        return Stages(
            linear_front, delta.chunk_transitions, linear_back, attention_front, attention_back
        )
    return Stages(
        torch.compile(linear_front, dynamic=False),
        torch.compile(delta.chunk_transitions, dynamic=False),
        torch.compile(linear_back, dynamic=False),
        torch.compile(attention_front, dynamic=False),
        torch.compile(attention_back, dynamic=False),
    )
