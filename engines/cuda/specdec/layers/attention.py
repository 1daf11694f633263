"""Grouped-query attention with an output gate over the KV pool.

The rows of one KV block of positions go together, over all KV rows to the block's end. Query heads
that share a KV head are stacked as extra rows of one product, and the row count is padded to a
multiple of ``ROW_MULTIPLE`` in windows aligned to absolute positions, so that the products inside
have shapes whose rows do not depend on their number (``numerics.py`` checks it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec import kernels
from specdec.config import ModelConfig
from specdec.layers.causal import CausalMask
from specdec.layers.fp8 import Fp8Weight
from specdec.layers.linear import Products, projection
from specdec.layers.norm import rms_norm
from specdec.layers.pointwise import sigmoid
from specdec.layers.rope import RopeTable
from specdec.parallel.joined import Joined
from specdec.plan import KV_BLOCK, AttentionJob
from specdec.state import KvState

ROW_MULTIPLE = 4


class Attention:
    """One layer's projections and norms; stateless, the rows live in a ``KvState``.

    ``weights``: q_proj [heads * 2 * head_dim, hidden] (per head query then gate), k_proj, v_proj,
    o_proj, q_norm and k_norm (offsets from one).
    """

    def __init__(
        self, config: ModelConfig, weights: dict[str, Tensor], products: Products, rope: RopeTable
    ) -> None:
        self._heads = config.num_attention_heads
        self._kv_heads = config.num_key_value_heads
        self._dim = config.head_dim
        self._group = self._heads // self._kv_heads
        self._eps = config.rms_norm_eps
        self._rope = rope
        # Rows of one product are window * group; on CUDA the window is always a whole KV block, as
        # kernels are picked by the number of rows there.
        self._window = ROW_MULTIPLE // math.gcd(ROW_MULTIPLE, self._group)
        if weights["q_proj"].device.type != "cpu":
            self._window = KV_BLOCK
        device = weights["q_proj"].device
        self._kernel = kernels.usable(device, (self._dim,), self._group)
        query, gate = query_and_gate(weights["q_proj"], self._heads, self._dim)
        parts = (query, weights["k_proj"], weights["v_proj"], gate)
        self._project = projection(parts, products)
        self._out = Joined(weights["o_proj"], products)
        gammas = [weights["q_norm"] + 1.0] * self._heads + [
            weights["k_norm"] + 1.0
        ] * self._kv_heads
        self._gammas = torch.stack(gammas)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[rows, hidden] to queries [rows, heads, dim], keys, values [rows, KV heads, dim], and
        gates [rows, heads * dim]."""
        rows, heads, kv_heads, dim = x.shape[0], self._heads, self._kv_heads, self._dim
        y = self._project(x)
        split = (heads + kv_heads) * dim
        both = rms_norm(y[:, :split].view(rows, heads + kv_heads, dim), None, self._eps)
        both = self._rope.rotate_(both.mul_(self._gammas), cos, sin)
        values = y[:, split : split + kv_heads * dim].view(rows, kv_heads, dim)
        return both[:, :heads], both[:, heads:], values, y[:, split + kv_heads * dim :]

    def attend(
        self,
        queries: Tensor,
        gates: Tensor,
        jobs: Seq[AttentionJob],
        kv: KvState,
        mask: CausalMask,
    ) -> Tensor:
        """The gated attention output [rows, hidden] of queries [rows, heads, dim]."""
        if self._kernel and type(kv) is KvState and type(mask) is CausalMask:
            from specdec.kernels.attend import attend  # Triton is not everywhere

            return self._out(sigmoid(gates) * attend(queries, kv.keys, kv.values, jobs))
        pieces = [self._one(queries, job, kv, mask) for job in jobs]
        mixed = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        return self._out(sigmoid(gates) * mixed)

    def _one(self, queries: Tensor, job: AttentionJob, kv: KvState, mask: CausalMask) -> Tensor:
        window = self._window
        before = job.offset % window
        padded = -(-(before + job.rows) // window) * window
        rows = queries[job.first : job.first + job.rows]
        if padded != job.rows:
            rows = F.pad(rows, (0, 0, 0, 0, before, padded - before - job.rows))
        # [rows, KV heads, group, dim] to [1, KV heads, rows * group, dim]
        stacked = rows.view(padded, self._kv_heads, self._group, self._dim).transpose(0, 1)
        stacked = stacked.reshape(1, self._kv_heads, padded * self._group, self._dim)
        keys, values = kv_view(kv, job, mask.kept(job.width))
        start = job.offset - before
        out = F.scaled_dot_product_attention(
            stacked,
            keys.transpose(0, 1).unsqueeze(0),
            values.transpose(0, 1).unsqueeze(0),
            attn_mask=mask.cut(start, start + padded, job.width),
        )
        out = out.view(self._kv_heads, padded, self._group, self._dim)
        out = out[:, before : before + job.rows].transpose(0, 1)
        return out.reshape(job.rows, self._heads * self._dim)


def query_and_gate(
    weight: Tensor | Fp8Weight, heads: int, dim: int
) -> tuple[Tensor | Fp8Weight, Tensor | Fp8Weight]:
    """q_proj's rows apart: per head ``dim`` of the query, then as many of the gate."""
    if isinstance(weight, Fp8Weight):
        order = torch.arange(heads * 2 * dim, device=weight.device).view(heads, 2, dim)
        return weight.rows(order[:, 0].flatten()), weight.rows(order[:, 1].flatten())
    paired = weight.view(heads, 2, dim, weight.shape[1])
    return paired[:, 0].flatten(0, 1), paired[:, 1].flatten(0, 1)


def kv_view(
    kv: KvState, job: AttentionJob, kept: tuple[int, int] | None = None
) -> tuple[Tensor, Tensor]:
    """Keys and values of the job's first ``width`` positions, [width, KV heads, dim] each, or of
    those before ``kept[0]`` and from ``kept[1]`` on.

    A view when the sequence's pages lie in one run, else a gathered copy of the same values.
    """
    if job.run_start is not None:
        run = slice(job.run_start, job.run_start + job.width)
        parts = [part[run] for part in kv.parts]
        if kept is not None:
            parts = [torch.cat((part[: kept[0]], part[kept[1] :])) for part in parts]
        return kv.opened(parts)
    assert job.page_index is not None
    paged = [part.unflatten(0, (-1, job.page_size)) for part in kv.parts]
    if kept is None:
        gathered = [part.index_select(0, job.page_index).flatten(0, 1) for part in paged]
        return kv.opened([part[: job.width] for part in gathered])
    return kv.opened([_some(part, job, kept) for part in paged])


def _some(paged: Tensor, job: AttentionJob, kept: tuple[int, int]) -> Tensor:
    """Rows before ``kept[0]`` and from ``kept[1]`` on, without gathering the pages between."""
    assert job.page_index is not None
    size, (stop, first) = job.page_size, kept
    head = paged.index_select(0, job.page_index[: -(-stop // size)]).flatten(0, 1)[:stop]
    skipped = first // size
    tail = paged.index_select(0, job.page_index[skipped:]).flatten(0, 1)
    return torch.cat((head, tail[first - skipped * size : job.width - skipped * size]))
