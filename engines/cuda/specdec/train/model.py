"""The training model: a Qwen3.5-type hybrid whose parameters carry their Hugging Face names.

Tokens of all sequences of a batch travel as one axis ``N = B * T``; only the attention, the
convolution's mask and the chunk scan know where a sequence begins. So the fused stages below see
the same shapes whatever the split of N into sequences, and compile once for every context length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from specdec.train import delta
from specdec.train.shape import ModelShape
from torch import Tensor, nn
from torch.nn import functional as F

Stage = Callable[..., tuple[Tensor, ...]]


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
    plain = (linear_front, delta.chunk_transitions, linear_back, attention_front, attention_back)
    if not compiled:
        return Stages(*plain)
    return Stages(*(torch.compile(stage, dynamic=False) for stage in plain))


class LinearMixer(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        channels = 2 * shape.linear_key_dim + shape.linear_value_dim
        heads = shape.linear_value_heads
        self.in_proj_qkv = nn.Linear(shape.hidden, channels, bias=False)
        self.in_proj_z = nn.Linear(shape.hidden, shape.linear_value_dim, bias=False)
        self.in_proj_b = nn.Linear(shape.hidden, heads, bias=False)
        self.in_proj_a = nn.Linear(shape.hidden, heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, shape.conv_kernel, groups=channels, bias=False)
        self.A_log = nn.Parameter(torch.log(torch.empty(heads).uniform_(0.5, 16.0)))
        # Half-lives from a few tokens to several thousand, so that some heads keep long memories.
        step = torch.exp(torch.linspace(-9.0, -2.0, heads))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(shape.linear_head_dim))
        self.out_proj = nn.Linear(shape.linear_value_dim, shape.hidden, bias=False)


class AttentionMixer(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        width = shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, shape.heads * width * 2, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * width, bias=False)
        self.o_proj = nn.Linear(shape.heads * width, shape.hidden, bias=False)
        self.q_norm = ZeroCentredNorm(width)
        self.k_norm = ZeroCentredNorm(width)


class ZeroCentredNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))


class FeedForward(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight


class Layer(nn.Module):
    """One decoder layer; ``full`` says which mixer it has."""

    def __init__(self, shape: ModelShape, full: bool) -> None:
        super().__init__()
        self.shape, self.full = shape, full
        if full:
            self.self_attn = AttentionMixer(shape)
        else:
            self.linear_attn = LinearMixer(shape)
        self.mlp = FeedForward(shape)
        self.input_layernorm = ZeroCentredNorm(shape.hidden)
        self.post_attention_layernorm = ZeroCentredNorm(shape.hidden)

    def attention_inputs(
        self, x: Tensor, cos: Tensor, sin: Tensor, run: Stages, dtype: torch.dtype
    ) -> tuple[Tensor, ...]:
        mixer = self.self_attn
        return run.attention_front(
            x,
            cos,
            sin,
            self.input_layernorm.weight,
            mixer.q_proj.weight,
            mixer.k_proj.weight,
            mixer.v_proj.weight,
            mixer.q_norm.weight,
            mixer.k_norm.weight,
            self.shape,
            dtype,
        )

    def attention_output(
        self, x: Tensor, out: Tensor, gate: Tensor, run: Stages, dtype: torch.dtype
    ) -> Tensor:
        weights = (self.self_attn.o_proj.weight, self.post_attention_layernorm.weight)
        return run.attention_back(x, out, gate, *weights, *self.mlp.weights(), self.shape, dtype)

    def linear_forward(
        self, x: Tensor, offset: Tensor, sequences: int, run: Stages, dtype: torch.dtype
    ) -> Tensor:
        mixer = self.linear_attn
        query, key, value, beta, cumulative, inner, strict, z = run.linear_front(
            x,
            offset,
            self.input_layernorm.weight,
            mixer.in_proj_qkv.weight,
            mixer.in_proj_z.weight,
            mixer.in_proj_b.weight,
            mixer.in_proj_a.weight,
            mixer.conv1d.weight,
            mixer.A_log,
            mixer.dt_bias,
            self.shape,
            dtype,
        )
        new_values, reads, transition, update = run.transitions(
            key, value, beta, cumulative, delta.solve(strict)
        )
        states = delta.scan_states(transition, update, sequences)
        return run.linear_back(
            x,
            query,
            cumulative,
            inner,
            new_values,
            reads,
            states,
            z,
            mixer.norm.weight,
            mixer.out_proj.weight,
            self.post_attention_layernorm.weight,
            *self.mlp.weights(),
            self.shape,
            dtype,
        )


class Body(nn.Module):
    """Everything under ``model.`` in the checkpoint."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        kinds = [shape.is_full_attention(index) for index in range(shape.layers)]
        self.layers = nn.ModuleList([Layer(shape, full) for full in kinds])
        self.norm = ZeroCentredNorm(shape.hidden)


class HybridModel(nn.Module):
    """The target. ``dtype`` is that of the products; parameters and residuals stay FP32."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.shape, self.dtype = shape, dtype
        self.model = Body(shape)
        initialise(self, shape)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos, sin [N, rotary_dim / 2] in FP32 for positions [N]."""
        dim = self.shape.rotary_dim
        steps = torch.arange(0, dim, 2, dtype=torch.float32, device=positions.device) / dim
        angles = positions.float().unsqueeze(-1) * (1.0 / self.shape.rope_theta**steps)
        return angles.cos(), angles.sin()

    def hidden(self, ids: Tensor, positions: Tensor | None, run: Stages) -> Tensor:
        """Final-normalised hidden rows [N, hidden] of ids [B, T], T a multiple of 64.

        ``positions`` [B, T] only turn the rotary phases; None counts from 0 in each row.
        """
        sequences, length = ids.shape
        offset = torch.arange(length, device=ids.device).repeat(sequences)
        cos, sin = self.rotary(offset if positions is None else positions.flatten())
        x = F.embedding(ids.flatten(), self.model.embed_tokens.weight).float()
        for layer in self.model.layers:
            assert isinstance(layer, Layer)
            if layer.full:
                query, key, value, gate = layer.attention_inputs(x, cos, sin, run, self.dtype)
                out = causal_attention(query, key, value, sequences)
                x = layer.attention_output(x, out, gate, run, self.dtype)
            else:
                x = layer.linear_forward(x, offset, sequences, run, self.dtype)
        return rms_norm(x, self.model.norm.weight, self.shape.norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        return project(hidden, self.model.embed_tokens.weight, self.dtype)


def initialise(module: nn.Module, shape: ModelShape) -> None:
    """Normal weights scaled by fan-in; residual outputs shrunk by depth."""
    shrink = (2 * shape.layers) ** -0.5
    for name, parameter in module.named_parameters():
        if parameter.ndim < 2:
            continue
        if "embed_tokens" in name:
            std = 0.02
        elif "conv1d" in name:
            std = shape.conv_kernel**-0.5
        else:
            std = parameter.shape[1] ** -0.5
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                std *= shrink
        nn.init.normal_(parameter, std=std)
