"""The blocks of Gated DeltaNet in one kernel: a program holds a slice of a head's state and walks a
sequence's blocks with it. The formulas are those of ``layers/deltanet.py``.

Blocks of eight rows are padded to the sixteen that a matrix product needs; the padding is zero.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from specdec.plan import BLOCK, BlockRuns

ROWS = 16
SLICE = 32  # value columns of the state a program holds


@triton.jit
def _walk(
    mixed, logs, matrix, out, jobs, runs,
    heads, repeat, lanes, mixed_width, eps, gamma,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SLICE: tl.constexpr,
):  # fmt: skip
    run, head = tl.program_id(0), tl.program_id(1)
    row = tl.arange(0, ROWS)
    key = tl.arange(0, K)
    column = tl.program_id(2) * SLICE + tl.arange(0, SLICE)
    live = row < BLOCK
    earlier = row[None, :] < row[:, None]
    same = row[None, :] == row[:, None]
    key_width = heads // repeat * K
    key_head = head // repeat
    start, stop = tl.load(runs + run), tl.load(runs + run + 1)
    cell = head * K * V + key[:, None] * V + column[None, :]
    # A job is (number, slot, parity, completes).
    slot, parity = tl.load(jobs + start * 4 + 1), tl.load(jobs + start * 4 + 2)
    state = tl.load(matrix + (slot * 2 + parity) * heads * K * V + cell)
    for n in range(start, stop):
        job = tl.load(jobs + n * 4)
        parity = tl.load(jobs + n * 4 + 2)
        completes = tl.load(jobs + n * 4 + 3)
        base = mixed + job * BLOCK * mixed_width + row[:, None] * mixed_width
        real = live[:, None]
        q = tl.load(base + key_head * K + key[None, :], mask=real, other=0.0)
        k = tl.load(base + key_width + key_head * K + key[None, :], mask=real, other=0.0)
        v = tl.load(base + 2 * key_width + head * V + column[None, :], mask=real, other=0.0)
        q = q * (tl.rsqrt(tl.sum(q * q, 1) / K + eps) * gamma)[:, None]
        k = k * (tl.rsqrt(tl.sum(k * k, 1) / K + eps) * gamma)[:, None]
        gates = logs + (job * BLOCK + row) * 2 * lanes + head
        beta = tl.exp(tl.load(gates, mask=live, other=0.0))
        g = tl.load(gates + lanes, mask=live, other=0.0)
        sums = tl.sum(tl.where(earlier | same, g[None, :], 0.0), 1)
        last = tl.sum(g, 0)
        decay = tl.exp(sums[:, None] - sums[None, :])
        lower = tl.dot(k, tl.trans(k), input_precision="ieee") * decay * beta[:, None]
        lower = tl.where(earlier, lower, 0.0)
        mix = tl.dot(q, tl.trans(k), input_precision="ieee") * decay
        mix = tl.where(earlier | same, mix, 0.0)
        inverse = tl.where(same, 1.0, 0.0) - lower
        squared = tl.dot(lower, lower, input_precision="ieee")
        inverse += tl.dot(inverse, squared, input_precision="ieee")
        fourth = tl.dot(squared, squared, input_precision="ieee")
        inverse += tl.dot(inverse, fourth, input_precision="ieee")
        growth = tl.exp(sums)
        seen = tl.dot(k, state, input_precision="ieee") * (beta * growth)[:, None]
        delta = tl.dot(inverse, v * beta[:, None] - seen, input_precision="ieee")
        read = tl.dot(q, state, input_precision="ieee") * growth[:, None]
        read += tl.dot(mix, delta, input_precision="ieee")
        target = out + ((job * heads + head) * BLOCK + row[:, None]) * V + column[None, :]
        tl.store(target, read, mask=real)
        if completes:
            fading = k * tl.exp(last - sums)[:, None]
            state = state * tl.exp(last) + tl.dot(tl.trans(fading), delta, input_precision="ieee")
            # Two buffers take turns, so only the last two blocks' states can survive the run.
            if n >= stop - 2:
                tl.store(matrix + (slot * 2 + 1 - parity) * heads * K * V + cell, state)


def walk_blocks(
    mixed: Tensor, logs: Tensor, matrix: Tensor, runs: BlockRuns, key_heads: int, eps: float
) -> Tensor:
    """o of every job's eight rows, [J, heads, 8, value dim]; stores the states at block edges.

    ``mixed``: [J, 8, width], convolved rows q | k | v. ``logs``: [J, 8, 2·lanes], log β of each
    head, then g. ``matrix``: [slots, 2, heads, key dim, value dim], updated.
    """
    heads, key_dim, value_dim = matrix.shape[2:]
    jobs = mixed.shape[0]
    out = torch.empty(jobs, heads, BLOCK, value_dim, device=mixed.device)
    columns = min(SLICE, value_dim)
    _walk[(runs.count, heads, value_dim // columns)](
        mixed, logs, matrix, out, runs.jobs, runs.edges,
        heads, heads // key_heads, logs.shape[2] // 2, mixed.shape[2], eps, key_dim**-0.5,
        BLOCK, ROWS, key_dim, value_dim, columns, num_warps=4,
    )  # fmt: skip
    return out
