"""Causal grouped-query attention of a few rows over a long paged cache.

Rows of the same ``TILE`` positions go together, with the query heads that share a KV head stacked;
the cache is cut at absolute multiples of ``SPLIT`` rows, whose partial sums a second kernel adds in
order. So prefill, decode and verify do the same sums for the same row (flash-decoding: Dao et al.
2023), and a pass of one row still fills the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq

import torch
import triton
import triton.language as tl
from torch import Tensor

from specdec.plan import KV_BLOCK, AttentionJob

TILE = 16
SPLIT = 8192
PRECISION = "tf32x3"  # three products of 19-bit parts: FP32's accuracy on tensor cores


@triton.jit
def _partial(
    queries, keys, values, sums, stats, tiles, table,
    query_stride, page_size, splits, scale,
    TILE: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
    SPLIT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # A tile is (first row of the pass, rows, their place in the tile, the tile's position, where
    # the sequence's rows begin or -1, where its page table begins).
    tile, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_heads = tl.num_programs(1)
    position = tl.load(tiles + tile * 6 + 3)
    stop = (position // N + 1) * N
    begin = split * SPLIT
    if begin < stop:
        first, rows = tl.load(tiles + tile * 6), tl.load(tiles + tile * 6 + 1)
        place = tl.load(tiles + tile * 6 + 2)
        run, pages = tl.load(tiles + tile * 6 + 4), tl.load(tiles + tile * 6 + 5)
        stacked = tl.arange(0, TILE * GROUP)
        local, member = stacked // GROUP, stacked % GROUP
        live = (local >= place) & (local < place + rows)
        d, n = tl.arange(0, D), tl.arange(0, N)
        at = (first + local - place) * query_stride + (kv_head * GROUP + member) * D
        q = tl.load(queries + at[:, None] + d[None, :], mask=live[:, None], other=0.0)
        most = tl.full((TILE * GROUP,), float("-inf"), tl.float32)
        total = tl.zeros((TILE * GROUP,), tl.float32)
        mixed = tl.zeros((TILE * GROUP, D), tl.float32)
        for start in range(begin, tl.minimum(begin + SPLIT, stop), N):
            row = run + start
            if run < 0:
                page = tl.load(table + pages + start // page_size)
                row = page * page_size + start % page_size
            cell = ((row + n) * kv_heads + kv_head)[:, None] * D + d[None, :]
            k = tl.load(keys + cell)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            seen = (start + n)[None, :] <= (position + local)[:, None]
            scores = tl.where(seen, scores, float("-inf"))
            higher = tl.maximum(most, tl.max(scores, 1))
            fade = tl.exp(most - higher)
            weights = tl.exp(scores - higher[:, None])
            total = total * fade + tl.sum(weights, 1)
            mixed = mixed * fade[:, None]
            mixed += tl.dot(weights, tl.load(values + cell), input_precision=PRECISION)
            most = higher
        part = ((tile * kv_heads + kv_head) * splits + split) * TILE * GROUP + stacked
        tl.store(sums + part[:, None] * D + d[None, :], mixed)
        tl.store(stats + part * 2, most)
        tl.store(stats + part * 2 + 1, total)


@triton.jit
def _combine(
    sums, stats, out, tiles, splits, out_stride,
    TILE: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, N: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    kv_heads = tl.num_programs(1)
    first, rows = tl.load(tiles + tile * 6), tl.load(tiles + tile * 6 + 1)
    place, position = tl.load(tiles + tile * 6 + 2), tl.load(tiles + tile * 6 + 3)
    stacked = tl.arange(0, TILE * GROUP)
    local, member = stacked // GROUP, stacked % GROUP
    live = (local >= place) & (local < place + rows)
    d = tl.arange(0, D)
    most = tl.full((TILE * GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((TILE * GROUP,), tl.float32)
    mixed = tl.zeros((TILE * GROUP, D), tl.float32)
    for split in range(0, (position // N + 1) * N, SPLIT):
        part = ((tile * kv_heads + kv_head) * splits + split // SPLIT) * TILE * GROUP + stacked
        theirs = tl.load(stats + part * 2)
        higher = tl.maximum(most, theirs)
        fade, join = tl.exp(most - higher), tl.exp(theirs - higher)
        total = total * fade + tl.load(stats + part * 2 + 1) * join
        mixed = mixed * fade[:, None]
        mixed += tl.load(sums + part[:, None] * D + d[None, :]) * join[:, None]
        most = higher
    at = (first + local - place) * out_stride + (kv_head * GROUP + member) * D
    tl.store(out + at[:, None] + d[None, :], mixed / total[:, None], mask=live[:, None])


def attend(queries: Tensor, keys: Tensor, values: Tensor, jobs: Seq[AttentionJob]) -> Tensor:
    """Attention of queries [rows, heads, dim] over the pool's keys and values [pool rows, KV heads,
    dim]: [rows, heads * dim]. ``jobs`` cover every row."""
    rows, heads, dim = queries.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    facts, table = _tiles(jobs, queries.device)
    tiles = facts.shape[0]
    splits = -(-max(job.width for job in jobs) // SPLIT)
    device = queries.device
    sums = torch.empty(tiles, kv_heads, splits, TILE * group, dim, device=device)
    stats = torch.empty(tiles, kv_heads, splits, TILE * group, 2, device=device)
    out = torch.empty(rows, heads * dim, device=device)
    _partial[(tiles, kv_heads, splits)](
        queries, keys, values, sums, stats, facts, table,
        queries.stride(0), jobs[0].page_size, splits, 1.0 / math.sqrt(dim),
        TILE, group, dim, KV_BLOCK, SPLIT, PRECISION, num_warps=4,
    )  # fmt: skip
    _combine[(tiles, kv_heads)](
        sums, stats, out, facts, splits, out.stride(0),
        TILE, group, dim, KV_BLOCK, SPLIT, num_warps=4,
    )  # fmt: skip
    return out


def _tiles(jobs: Seq[AttentionJob], device: torch.device) -> tuple[Tensor, Tensor]:
    """The jobs cut at multiples of ``TILE`` positions, and the page tables they point into."""
    facts: list[list[int]] = []
    tables: list[Tensor] = []
    held = 0
    for job in jobs:
        run = -1 if job.run_start is None else job.run_start
        block = job.width - KV_BLOCK
        begin, stop = job.offset, job.offset + job.rows
        while begin < stop:
            end = min(stop, (begin // TILE + 1) * TILE)
            first = job.first + begin - job.offset
            tile = begin // TILE * TILE
            facts.append([first, end - begin, begin - tile, block + tile, run, held])
            begin = end
        if job.page_index is not None:
            tables.append(job.page_index)
            held += len(job.page_index)
    table = torch.cat(tables) if tables else torch.zeros(1, dtype=torch.int64, device=device)
    return torch.tensor(facts, dtype=torch.int64).to(device), table
