"""The target one token at a time, for thousands of sequences at once.

The training model runs whole sequences; continuations need it step by step. Sequences advance in
lockstep: a step is given its tokens (a prompt's) or takes the ones the last step chose.
"""

from __future__ import annotations

import torch
from specdec.train.delta import l2_normalise
from specdec.train.model import HybridModel, Layer
from specdec.train.stages import attention_back, attention_front, feed_forward, project, rms_norm
from torch import Tensor
from torch.nn import functional as F


class Stepper:
    """State of ``sequences`` sequences of up to ``length`` tokens on the target's device."""

    def __init__(self, model: HybridModel, sequences: int, length: int) -> None:
        self.model, self.place = model, 0
        shape, device = model.shape, model.model.embed_tokens.weight.device
        heads, width = shape.linear_value_heads, shape.linear_head_dim
        channels = 2 * shape.linear_key_dim + shape.linear_value_dim
        self.matrix: dict[int, Tensor] = {}
        self.tail: dict[int, Tensor] = {}
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        for index in range(shape.layers):
            if shape.is_full_attention(index):
                rows = (sequences, shape.kv_heads, length, shape.head_dim)
                self.keys[index] = torch.zeros(rows, dtype=model.dtype, device=device)
                self.values[index] = torch.zeros(rows, dtype=model.dtype, device=device)
            else:
                self.matrix[index] = torch.zeros(sequences * heads, width, width, device=device)
                taps = shape.conv_kernel - 1
                self.tail[index] = torch.zeros(sequences, taps, channels, device=device)

    @torch.no_grad()
    def step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Final-normalised hidden rows [B, hidden] of tokens [B]; ``positions`` [B] turn phases."""
        model = self.model
        cos, sin = model.rotary(positions)
        x = F.embedding(tokens, model.model.embed_tokens.weight).float()
        for index, layer in enumerate(model.model.layers):
            assert isinstance(layer, Layer)
            if layer.full:
                x = self._full(index, layer, x, cos, sin)
            else:
                x = self._linear(index, layer, x)
        self.place += 1
        return rms_norm(x, model.model.norm.weight, model.shape.norm_eps)

    def _full(self, index: int, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        shape, dtype, mixer = self.model.shape, self.model.dtype, layer.self_attn
        query, key, value, gate = attention_front(
            x, cos, sin, layer.input_layernorm.weight,
            mixer.q_proj.weight, mixer.k_proj.weight, mixer.v_proj.weight,
            mixer.q_norm.weight, mixer.k_norm.weight, shape, dtype,
        )  # fmt: skip
        self.keys[index][:, :, self.place] = key
        self.values[index][:, :, self.place] = value
        seen = self.place + 1
        out = F.scaled_dot_product_attention(
            query.unsqueeze(2),
            self.keys[index][:, :, :seen],
            self.values[index][:, :, :seen],
            enable_gqa=True,
        ).squeeze(2)
        weights = (mixer.o_proj.weight, layer.post_attention_layernorm.weight)
        return attention_back(x, out, gate, *weights, *layer.mlp.weights(), shape, dtype)

    def _linear(self, index: int, layer: Layer, x: Tensor) -> Tensor:
        shape, dtype, mixer = self.model.shape, self.model.dtype, layer.linear_attn
        heads, width = shape.linear_value_heads, shape.linear_head_dim
        h = rms_norm(x, layer.input_layernorm.weight, shape.norm_eps)
        raw = project(h, mixer.in_proj_qkv.weight, dtype).float().unsqueeze(1)
        rows = torch.cat((self.tail[index], raw), 1)
        self.tail[index] = rows[:, 1:].contiguous()
        mixed = F.silu((rows * mixer.conv1d.weight[:, 0].float().t()).sum(1))
        parts = mixed.split([shape.linear_key_dim, shape.linear_key_dim, shape.linear_value_dim], 1)
        query, key, value = (part.unflatten(1, (-1, width)) for part in parts)
        group = heads // shape.linear_key_heads
        query = (l2_normalise(query) * width**-0.5).repeat_interleave(group, 1)
        key = l2_normalise(key).repeat_interleave(group, 1)
        beta = project(h, mixer.in_proj_b.weight, dtype).float().sigmoid()
        gate = F.softplus(project(h, mixer.in_proj_a.weight, dtype).float() + mixer.dt_bias.float())
        decay = (-mixer.A_log.float().exp() * gate).exp()
        out = self._recur(index, query, key, value, decay, beta)
        out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + shape.norm_eps)
        z = project(h, mixer.in_proj_z.weight, dtype).float().unflatten(1, (-1, width))
        gamma = mixer.norm.weight
        assert isinstance(gamma, Tensor)
        out = out * gamma.float() * F.silu(z)
        x = x + project(out.flatten(1), mixer.out_proj.weight, dtype).float()
        post = layer.post_attention_layernorm.weight
        return feed_forward(x, post, *layer.mlp.weights(), shape, dtype)

    def _recur(
        self, index: int, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor
    ) -> Tensor:
        """S <- a S; d = b (v - k S); S <- S + k d; o = q S, the reads of S taken together."""
        state = self.matrix[index]
        key, query, value = (x.flatten(0, 1).unsqueeze(1) for x in (key, query, value))
        decay, beta = decay.flatten()[:, None, None], beta.flatten()[:, None, None]
        reads = torch.bmm(torch.cat((key, query), 1), state) * decay
        change = beta * (value - reads[:, :1])
        state.mul_(decay).baddbmm_(key.mT, change)
        out = reads[:, 1:] + (query * key).sum(-1, keepdim=True) * change
        return out.view(-1, self.model.shape.linear_value_heads, out.shape[-1])
