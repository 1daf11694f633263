"""Gated DeltaNet in blocks of eight positions at absolute edges: one arithmetic for prefill,
decode and verify.

The recurrence per value head, with S [key dim, value dim], decay a = exp(g) and rate β::

    S ← a S;   δ = β (v - kᵀS);   S ← S + k δᵀ;   o = qᵀS

Unrolled from the state S₀ before a block, with G_i the sum of g over the block's rows up to i::

    δ_i = β_i (v_i - e^{G_i} k_iᵀS₀ - Σ_{j<i} e^{G_i-G_j} (k_i·k_j) δ_j)
    o_i = e^{G_i} q_iᵀS₀ + Σ_{j≤i} e^{G_i-G_j} (q_i·k_j) δ_j
    S₁  = e^{G_8} S₀ + Σ_j e^{G_8-G_j} k_j δ_jᵀ

The first line is a unit lower-triangular system (I + L) Δ = β(V - e^G K S₀). A row's result reads
only rows before it, and every product has the block's fixed shape, however many of its rows are
there yet. So a block that fills up one row at a time, or three, or all at once gives the same bits,
and S is only ever stored at block edges: rejected rows leave no trace in it (``state.py``).
Sources: Qwen3.5's reference implementation; Yang et al. 2024 (gated delta rule, chunkwise form).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec import kernels
from specdec.config import ModelConfig
from specdec.layers.fp8 import Fp8Weight
from specdec.layers.linear import Products, projection
from specdec.layers.norm import rms_norm
from specdec.layers.pointwise import exp, padded_lanes, silu, softplus
from specdec.layers.threads import Threads
from specdec.layers.windows import block_windows
from specdec.parallel.joined import Joined
from specdec.plan import BLOCK, BlockJob, BlockPlan, Pass
from specdec.state import DeltaState

L2_EPS = 1e-6


@dataclass(frozen=True)
class BlockTerms:
    """All that a block needs besides S₀. J jobs, H value heads, N = J·H.

    ``qk`` [N, 16, key dim]: normalised queries over keys. ``values`` [N, 8, value dim]: β V.
    ``factors`` [J, H, 4, 8]: β, e^G, β e^G, e^{G_8-G}. ``mix`` [N, 8, 8]: the o-sum's weights.
    ``solve`` [N, 8, 8]: (I + L)⁻¹.
    """

    qk: Tensor
    values: Tensor
    factors: Tensor
    mix: Tensor
    solve: Tensor


class DeltaNet:
    """One layer's projections, convolution and recurrence.

    ``weights``: in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, conv1d [width, 1, kernel], A_log,
    dt_bias, norm (plain gamma), out_proj.
    """

    def __init__(
        self, config: ModelConfig, weights: dict[str, Tensor], products: Products, threads: Threads
    ) -> None:
        self._c = config
        self._threads = threads
        heads, lanes = config.linear_value_heads, padded_lanes(config.linear_value_heads)
        self._lanes = lanes
        hidden, device = config.hidden_size, weights["in_proj_b"].device
        # Columns z | q k v | b | a. b is negated so that one softplus serves both gates:
        # log β = log sigmoid(b) = -softplus(-b) and g = -e^{A_log} softplus(a + dt).
        gates = torch.zeros(2 * lanes, hidden, device=device)
        gates[:heads] = -_in_full(weights["in_proj_b"])
        gates[lanes : lanes + heads] = _in_full(weights["in_proj_a"])
        parts = (weights["in_proj_z"], weights["in_proj_qkv"], gates)
        self._project = projection(parts, products)
        self._gate_bias = torch.zeros(2 * lanes, device=device)
        self._gate_bias[lanes : lanes + heads] = weights["dt_bias"]
        self._gate_scale = torch.full((2 * lanes,), -1.0, device=device)
        self._gate_scale[lanes : lanes + heads] = -weights["A_log"].exp()
        self._taps = weights["conv1d"].squeeze(1).t().contiguous()  # [kernel, width]
        # l2norm(x) = rms_norm(x, eps / n) / √n. The query's further 1/√n moves into the epsilon
        # of the norm behind it, which is blind to scale otherwise.
        self._qk_gamma = torch.full(
            (config.linear_key_dim,), config.linear_key_dim**-0.5, device=device
        )
        self._out_eps = config.rms_norm_eps * config.linear_key_dim
        self._out_gamma = weights["norm"]
        self._out = Joined(weights["out_proj"], products)
        self._kernel = kernels.usable(device, (config.linear_key_dim, config.linear_value_dim))
        self._identity = torch.eye(BLOCK, device=device)
        # -inf where a row may not look: queries see rows j ≤ i, keys rows j < i.
        full = torch.full((BLOCK, BLOCK), -math.inf, device=device)
        self._mask = torch.stack((full.triu(1), full.triu(0)))

    def __call__(self, x: Tensor, plan: Pass, state: DeltaState) -> Tensor:
        """[rows, hidden] to [rows, hidden]; writes the rows and block-edge states it computes."""
        y = self._project(x)
        z = y[:, : self._c.value_width]
        windows = block_windows(y[:, self._c.value_width :], plan, state.rows)
        mixed = self._mixed(windows, plan.blocks, state.matrix)
        rows = _rows_of_blocks(mixed, plan.blocks, x.shape[0])
        normed = rms_norm(rows, self._out_gamma, self._out_eps).reshape(x.shape[0], -1)
        return self._out(normed.mul_(silu(z)))

    def _mixed(self, windows: Tensor, plan: BlockPlan, matrix: Tensor) -> Tensor:
        """o of every job's eight rows, [J, H, 8, value dim]; stores the states at block edges.

        On CUDA a kernel walks the blocks. Without one each job goes alone, as a batched product
        picks its way by the batch's size there.
        """
        if self._kernel:
            from specdec.kernels.delta import walk_blocks  # Triton is not everywhere

            assert plan.runs is not None
            heads, eps = self._c.linear_key_heads, L2_EPS / self._c.linear_key_dim
            gates = windows[:, self._c.conv_kernel - 1 :, self._c.conv_width :]
            rows, logs = self._convolved(windows), self._logs(gates)
            return walk_blocks(rows, logs, matrix, plan.runs, heads, eps)
        if windows.device.type != "cpu":
            alone = [
                self._outputs(self._terms(windows[j : j + 1]), (job,), ((0, 1),), matrix)
                for j, job in enumerate(plan.jobs)
            ]
            return torch.cat(alone)
        terms = self._terms(windows)
        with self._threads.one():
            return self._outputs(terms, plan.jobs, plan.rounds, matrix)

    def _terms(self, windows: Tensor) -> BlockTerms:
        """``windows``: [J, taps + 8, width], raw rows of each block after those before it."""
        c, jobs = self._c, windows.shape[0]
        heads, repeat = c.linear_value_heads, c.linear_value_heads // c.linear_key_heads
        mixed = self._convolved(windows)
        qk = mixed[..., : 2 * c.key_width].view(
            jobs, BLOCK, 2, c.linear_key_heads, 1, c.linear_key_dim
        )
        qk = rms_norm(qk, self._qk_gamma, L2_EPS / c.linear_key_dim)
        qk = qk.expand(-1, -1, -1, -1, repeat, -1).permute(0, 3, 4, 2, 1, 5)
        qk = qk.reshape(jobs * heads, 2 * BLOCK, c.linear_key_dim)
        exponents, factors, g_sum = self._gates(windows[:, c.conv_kernel - 1 :, c.conv_width :])
        values = mixed[..., 2 * c.key_width :].view(jobs, BLOCK, heads, c.linear_value_dim)
        weighted = torch.empty(jobs, heads, BLOCK, c.linear_value_dim, device=windows.device)
        torch.mul(values.transpose(1, 2), factors[:, :, 0, :, None], out=weighted)
        inner = torch.bmm(qk, qk[:, BLOCK:].transpose(1, 2)).view(jobs, heads, 2, BLOCK, BLOCK)
        pairwise = exponents.unsqueeze(-1) - g_sum[:, :, None, None, :]
        inner = inner.mul_(exp(pairwise.add_(self._mask))).view(-1, 2, BLOCK, BLOCK)
        solve = unit_lower_inverse(inner[:, 1], self._identity)
        return BlockTerms(qk, weighted.flatten(0, 1), factors, inner[:, 0], solve)

    def _convolved(self, windows: Tensor) -> Tensor:
        """[J, 8, q | k | v]: causal depthwise convolution, taps added oldest first by exact
        products and sums, then SiLU."""
        rows, kernel = windows[..., : self._c.conv_width], self._taps.shape[0]
        out = rows[:, :BLOCK] * self._taps[0]
        for tap in range(1, kernel):
            out += rows[:, tap : tap + BLOCK] * self._taps[tap]
        return silu(out)

    def _logs(self, raw: Tensor) -> Tensor:
        """[J, 8, 2·lanes] raw gates: log β of each head, padding, then g and padding. FP32."""
        return softplus(raw + self._gate_bias).mul_(self._gate_scale)

    def _gates(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[J, 8, 2·lanes] raw gates to the exponents (G, G + log β) [J, H, 2, 8] of the pairwise
        weights' rows, the factors of ``BlockTerms``, and G [J, H, 8]. All FP32."""
        heads, lanes = self._c.linear_value_heads, self._lanes
        logs = self._logs(raw).transpose(1, 2)
        log_beta, g = logs[:, :heads], logs[:, lanes : lanes + heads]
        parts = torch.empty(logs.shape[0], heads, 4, BLOCK, device=logs.device)
        parts[:, :, 0] = log_beta
        torch.cumsum(g, 2, out=parts[:, :, 1])
        torch.add(parts[:, :, 1], log_beta, out=parts[:, :, 2])
        torch.sub(parts[:, :, 1, -1:], parts[:, :, 1], out=parts[:, :, 3])
        return parts[:, :, 1:3], exp(parts), parts[:, :, 1]

    def _outputs(
        self,
        terms: BlockTerms,
        plan: tuple[BlockJob, ...],
        rounds: tuple[tuple[int, int], ...],
        matrix: Tensor,
    ) -> Tensor:
        """o of every job's eight rows; stores the state after each block that a job completes."""
        c, heads, jobs = self._c, self._c.linear_value_heads, len(plan)
        read = torch.empty(jobs, heads, 2, BLOCK, c.linear_value_dim, device=matrix.device)
        delta = torch.empty(jobs, heads, BLOCK, c.linear_value_dim, device=matrix.device)
        qk = terms.qk.view(jobs, heads, 2 * BLOCK, -1)
        scale = terms.factors[:, :, 1:3].unsqueeze(-1)
        values = terms.values.view(jobs, heads, BLOCK, -1)
        solve = terms.solve.view(jobs, heads, BLOCK, BLOCK)
        for start, stop in rounds:
            for j in range(start, stop):
                job = plan[j]
                torch.bmm(qk[j], matrix[job.slot, job.parity], out=read[j].flatten(1, 2))
            now = slice(start, stop)
            part = read[now].mul_(scale[now])
            rest = values[now] - part[:, :, 1]
            torch.bmm(solve[now].flatten(0, 1), rest.flatten(0, 1), out=delta[now].flatten(0, 1))
            for j in range(start, stop):
                job = plan[j]
                if job.completes:
                    self._store(
                        matrix[job.slot, job.parity], matrix[job.slot, 1 - job.parity],
                        qk[j, :, BLOCK:], terms.factors[j], delta[j],
                    )  # fmt: skip
        queries = read[:, :, 0].flatten(0, 1)
        mixed = torch.baddbmm(queries, terms.mix, delta.flatten(0, 1))
        return mixed.view(jobs, heads, BLOCK, c.linear_value_dim)

    @staticmethod
    def _store(before: Tensor, after: Tensor, keys: Tensor, factors: Tensor, delta: Tensor) -> None:
        """S₁ of the block into ``after``: keys [H, 8, key dim], factors [H, 4, 8]."""
        torch.mul(before, factors[:, 1, -1, None, None], out=after)
        decayed = keys * factors[:, 3, :, None]
        after.baddbmm_(decayed.transpose(1, 2), delta)


def _in_full(gates: Tensor | Fp8Weight) -> Tensor:
    """The rows of a gate, one for each head: few enough to expand."""
    return gates.expanded(0, gates.shape[0]) if isinstance(gates, Fp8Weight) else gates


def unit_lower_inverse(lower: Tensor, identity: Tensor) -> Tensor:
    """(I + L)⁻¹ for strictly lower L [N, 8, 8].

    L⁸ = 0, so (I + L)⁻¹ = (I - L)(I + L²)(I + L⁴). A row of it reads only rows up to itself, which
    products with zeros keep so in every bit.
    """
    squared = torch.bmm(lower, lower)
    inverse = identity - lower
    inverse = torch.baddbmm(inverse, inverse, squared)
    return torch.baddbmm(inverse, inverse, torch.bmm(squared, squared))


def _rows_of_blocks(mixed: Tensor, plan: BlockPlan, rows: int) -> Tensor:
    """[J, H, 8, dim] by blocks to [rows, H, dim] in the order of the pass."""
    jobs, heads, _, dim = mixed.shape
    by_row = mixed.transpose(1, 2)
    by_block = by_row.reshape(jobs * BLOCK, heads, dim)
    if plan.gather is not None:
        return by_block.index_select(0, plan.gather.rows)
    first = plan.jobs[0].offset
    return by_block[first : first + rows]
