"""The block drafters' backbone as a training module; parameters carry their checkpoint names.

A block is one row for the anchor (the last committed token) and rows of the mask token after it.
Its rows see each other and the context before the anchor, whose keys and values are made from the
target's hidden rows at the tapped layers, never from tokens. Residuals, norms and convolutions stay
in FP32; products run in ``dtype``. RMS norms here are plain gammas, the target's are offsets.

Shapes: B sequences, T context rows each, A blocks a sequence, R rows a block.
"""

from __future__ import annotations

import torch
from specdec.train.drafter_shape import DrafterShape
from specdec.train.stages import project, rotate
from torch import Tensor, nn
from torch.nn import functional as F


class PlainNorm(nn.Module):
    """RMS norm whose weight is the factor itself."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.float()


def convolve(x: Tensor, base: Tensor, delta: Tensor) -> Tensor:
    """out[i, c] = sum over t of (base[t, c] + delta[i, t, group of c]) * x[i - t, c].

    x [..., R, channels]; base [taps, channels]; delta [..., R, taps, groups]. Rows before the
    block count as zero.
    """
    taps, channels = base.shape
    groups = delta.shape[-1]
    out = torch.zeros_like(x)
    for tap in range(taps):
        shifted = x if tap == 0 else F.pad(x[..., :-tap, :], (0, 0, tap, 0))
        kernel = base[tap] + delta[..., tap, :].repeat_interleave(channels // groups, -1)
        out = out + kernel * shifted
    return out


class GroupedConv(nn.Module):
    """The convolution around one sublayer: over its input, and with other taps over its output.

    It begins as the identity.
    """

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        self.groups = shape.hidden // shape.conv_group
        base = torch.zeros(2, shape.conv_taps, shape.hidden)
        base[:, 0] = 1.0
        self.base_kernel = nn.Parameter(base)
        self.kernel_projection = nn.Linear(
            shape.hidden, 2 * shape.conv_taps * self.groups, bias=False
        )
        nn.init.zeros_(self.kernel_projection.weight)

    def prepare(self, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The sublayer's input [..., R, hidden], convolved, and the taps for ``finish``."""
        delta = project(x, self.kernel_projection.weight, dtype).float()
        delta = delta.unflatten(-1, (2, self.shape.conv_taps, self.groups))
        return convolve(x, self.base_kernel[0], delta[..., 0, :, :]), delta[..., 1, :, :]

    def finish(self, x: Tensor, delta: Tensor) -> Tensor:
        return convolve(x.float(), self.base_kernel[1], delta)


class DraftAttention(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden, bias=False)
        self.q_norm = PlainNorm(shape.head_dim, shape.norm_eps)
        self.k_norm = PlainNorm(shape.head_dim, shape.norm_eps)

    def queries(self, x: Tensor, rope: tuple[Tensor, Tensor], dtype: torch.dtype) -> Tensor:
        """[B, N, hidden] to [B, heads, N, head_dim]."""
        heads = project(x, self.q_proj.weight, dtype).unflatten(-1, (-1, self.shape.head_dim))
        return turn(self.q_norm(heads), rope).to(dtype).transpose(1, 2)

    def keys_values(
        self, x: Tensor, rope: tuple[Tensor, Tensor], dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """[B, N, hidden] to keys and values [B, heads, N, head_dim], repeated for their groups."""
        heads = project(x, self.k_proj.weight, dtype).unflatten(-1, (-1, self.shape.head_dim))
        keys = turn(self.k_norm(heads), rope).to(dtype)
        values = project(x, self.v_proj.weight, dtype).unflatten(-1, (-1, self.shape.head_dim))
        group = self.shape.heads // self.shape.kv_heads
        keys, values = (rows.repeat_interleave(group, 2).transpose(1, 2) for rows in (keys, values))
        return keys, values


def turn(heads: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate [B, N, heads, width] by cos, sin [B * N, width / 2]."""
    return rotate(heads.flatten(0, 1), *rope).view_as(heads)


class DraftMlp(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def forward(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        gate, up = project(x, self.gate_proj.weight, dtype), project(x, self.up_proj.weight, dtype)
        return project(F.silu(gate) * up, self.down_proj.weight, dtype).float()


class DraftLayer(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        self.input_layernorm = PlainNorm(shape.hidden, shape.norm_eps)
        self.self_attn = DraftAttention(shape)
        self.post_attention_layernorm = PlainNorm(shape.hidden, shape.norm_eps)
        self.mlp = DraftMlp(shape)
        if shape.kind == "dflash2":
            self.attention_conv = GroupedConv(shape)
            self.mlp_conv = GroupedConv(shape)

    def forward(
        self,
        x: Tensor,
        context: Tensor,
        ropes: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]],
        mask: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        """x [B, A, R, hidden], context [B, T, hidden], mask [B, 1, A * R, T + A * R] additive."""
        entered, taps = self.input_layernorm(x), None
        if self.shape.kind == "dflash2":
            entered, taps = self.attention_conv.prepare(entered, dtype)
        mixed = self._attend(entered.flatten(1, 2), context, ropes, mask, dtype).view_as(x)
        x = x + (mixed if taps is None else self.attention_conv.finish(mixed, taps))
        entered, taps = self.post_attention_layernorm(x), None
        if self.shape.kind == "dflash2":
            entered, taps = self.mlp_conv.prepare(entered, dtype)
        mixed = self.mlp(entered, dtype)
        return x + (mixed if taps is None else self.mlp_conv.finish(mixed, taps))

    def _attend(
        self,
        rows: Tensor,
        context: Tensor,
        ropes: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]],
        mask: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        mixer = self.self_attn
        query = mixer.queries(rows, ropes[1], dtype)
        seen = mixer.keys_values(context, ropes[0], dtype), mixer.keys_values(rows, ropes[1], dtype)
        key, value = (torch.cat(pair, 2) for pair in zip(*seen, strict=True))
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return project(out.transpose(1, 2).flatten(2), mixer.o_proj.weight, dtype).float()


class Drafter(nn.Module):
    """The backbone both kinds share; no embedding and no head, the target's are used."""

    def __init__(self, shape: DrafterShape, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.shape, self.dtype = shape, dtype
        self.fc = nn.Linear(len(shape.taps) * shape.hidden, shape.hidden, bias=False)
        self.hidden_norm = PlainNorm(shape.hidden, shape.norm_eps)
        self.layers = nn.ModuleList([DraftLayer(shape) for _ in range(shape.layers)])
        self.norm = PlainNorm(shape.hidden, shape.norm_eps)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and "kernel_projection" not in name:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    parameter.data.mul_((2 * shape.layers) ** -0.5)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos, sin [N, head_dim / 2] in FP32; every channel of a head turns."""
        dim = self.shape.head_dim
        steps = torch.arange(0, dim, 2, dtype=torch.float32, device=positions.device) / dim
        angles = positions.flatten().float().unsqueeze(-1) * (1.0 / self.shape.rope_theta**steps)
        return angles.cos(), angles.sin()

    def forward(
        self,
        features: Tensor,
        positions: Tensor,
        embedded: Tensor,
        anchors: Tensor,
    ) -> Tensor:
        """Final-normalised block rows [B, A, R, hidden].

        features [B, T, taps * hidden]: the target's rows at the tapped layers; positions [B, T];
        embedded [B, A, R, hidden]: the anchor's and the mask's embeddings; anchors [B, A]: the
        anchor's index in its sequence.
        """
        context = self.hidden_norm(project(features, self.fc.weight, self.dtype))
        steps = torch.arange(embedded.shape[2], device=anchors.device)
        own = positions.gather(1, anchors).unsqueeze(-1) + steps
        mask = self.mask(positions, own, anchors)
        ropes = self.rotary(positions), self.rotary(own)
        x = embedded.float()
        for layer in self.layers:
            x = layer(x, context, ropes, mask, self.dtype)
        rows: Tensor = self.norm(x)
        return rows

    def mask(self, positions: Tensor, own: Tensor, anchors: Tensor) -> Tensor:
        """Additive [B, 1, A * R, T + A * R]: the context before the anchor (within the window, if
        there is one) and the row's own block."""
        batch, blocks, rows = own.shape
        length = positions.shape[1]
        before = torch.arange(length, device=own.device) < anchors.unsqueeze(-1)
        seen = before.unsqueeze(2).expand(-1, -1, rows, -1)
        if self.shape.window is not None:
            near = positions.view(batch, 1, 1, length) > own.unsqueeze(-1) - self.shape.window
            seen = seen & near
        block = torch.arange(blocks, device=own.device).repeat_interleave(rows)
        same = (block.unsqueeze(1) == block).expand(batch, -1, -1)
        both = torch.cat((seen.flatten(1, 2), same), 2).unsqueeze(1)
        return torch.zeros_like(both, dtype=self.dtype).masked_fill_(~both, float("-inf"))
