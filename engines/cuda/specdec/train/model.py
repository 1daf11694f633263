"""The training model: a Qwen3.5-type hybrid whose parameters carry their Hugging Face names.

Tokens of all sequences of a batch travel as one axis ``N = B * T``; only the attention, the
convolution's mask and the chunk scan know where a sequence begins (``stages.py``).
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from specdec.train import delta
from specdec.train.shape import ModelShape
from specdec.train.stages import Stages, causal_attention, project, rms_norm
from torch import Tensor, nn
from torch.nn import functional as F


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
        return self.tapped(ids, positions, run, ())[0]

    def tapped(
        self, ids: Tensor, positions: Tensor | None, run: Stages, taps: Collection[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """What ``hidden`` returns, and the residual rows [N, hidden] behind each layer tapped."""
        sequences, length = ids.shape
        offset = torch.arange(length, device=ids.device).repeat(sequences)
        cos, sin = self.rotary(offset if positions is None else positions.flatten())
        x = F.embedding(ids.flatten(), self.model.embed_tokens.weight).float()
        rows: dict[int, Tensor] = {}
        for index, layer in enumerate(self.model.layers):
            assert isinstance(layer, Layer)
            if layer.full:
                query, key, value, gate = layer.attention_inputs(x, cos, sin, run, self.dtype)
                out = causal_attention(query, key, value, sequences)
                x = layer.attention_output(x, out, gate, run, self.dtype)
            else:
                x = layer.linear_forward(x, offset, sequences, run, self.dtype)
            if index in taps:
                rows[index] = x
        return rms_norm(x, self.model.norm.weight, self.shape.norm_eps), rows

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
