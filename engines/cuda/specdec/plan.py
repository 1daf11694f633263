"""What one forward pass covers, worked out once for all layers.

A pass carries the rows of one or more sequences side by side: one row each in plain decode, the
anchor and its drafts in a verify pass, a chunk in prefill. Two groupings follow from absolute
positions alone, so that a row meets the same shapes however it came:

- attention takes rows that lie in the same ``KV_BLOCK`` of positions together, over all KV rows up
  to that block's end (the rest masked);
- the recurrence takes rows by ``BLOCK`` of positions (``layers/deltanet.py``).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.pages import one_run

KV_BLOCK = 64  # positions; page sizes are multiples of it
BLOCK = 8  # positions of one block of the recurrence


@dataclass(frozen=True)
class Span:
    """One sequence's rows: token ids at positions ``position``, ``position + 1``, …"""

    slot: int
    pages: list[int]
    position: int
    tokens: list[int]


@dataclass(frozen=True)
class AttentionJob:
    """Rows ``first`` to ``first + rows - 1`` of the pass against ``width`` KV rows.

    ``offset``: the first row's place in its KV block. ``run_start``: the pool row where the
    sequence's rows begin when they lie in one run; otherwise ``page_index`` lists its pages.
    """

    first: int
    rows: int
    offset: int
    width: int
    run_start: int | None
    page_index: Tensor | None
    page_size: int


@dataclass(frozen=True)
class BlockJob:
    """One sequence's rows within one block of the recurrence.

    Rows ``first`` … of the pass sit at ``offset`` … in block number ``block``.
    """

    slot: int
    block: int
    offset: int
    rows: int
    first: int

    @property
    def parity(self) -> int:
        """Which of the slot's two buffers holds this block."""
        return self.block % 2

    @property
    def completes(self) -> bool:
        return self.offset + self.rows == BLOCK


@dataclass(frozen=True)
class BlockGather:
    """Index tensors that move several sequences' rows in and out of their blocks.

    Rows ``source`` of the pass go to rows ``target`` of the flattened row memory; then its rows
    ``tail_source`` are copied to ``tail_target`` (the heads of blocks that follow a finished one);
    ``windows`` picks the jobs' buffers and ``rows`` the pass's rows out of the jobs' blocks.
    """

    source: Tensor
    target: Tensor
    tail_source: Tensor
    tail_target: Tensor
    windows: Tensor
    rows: Tensor


@dataclass(frozen=True)
class BlockRuns:
    """Each sequence's jobs in order, for a kernel that walks them (int32, on the device).

    ``jobs``: [J, 4], number, slot, parity, completes. Sequence i's are ``edges[i]:edges[i + 1]``.
    """

    jobs: Tensor
    edges: Tensor
    count: int


@dataclass(frozen=True)
class BlockPlan:
    """Jobs in rounds: a sequence's n-th block is in round n, as it needs the state before it."""

    jobs: tuple[BlockJob, ...]
    rounds: tuple[tuple[int, int], ...]  # [start, stop) ranges of ``jobs``
    gather: BlockGather | None  # None for a single sequence: its jobs are consecutive blocks
    runs: BlockRuns | None = None  # on CUDA


@dataclass(frozen=True)
class Pass:
    """One forward pass: ``rows`` rows of all spans in order, and the groupings above."""

    spans: tuple[Span, ...]
    rows: int
    token_ids: Tensor  # [rows] int64
    positions: Tensor  # [rows] int64
    kv_rows: Tensor  # [rows] int64, rows of the KV pool
    attention: tuple[AttentionJob, ...]
    blocks: BlockPlan


def plan_pass(spans: Seq[Span], page_size: int, taps: int, device: torch.device) -> Pass:
    """Work out a pass. Every span has at least one token, and pages for all its positions.

    ``taps``: rows before a block that its convolution reads. Several spans together may each touch
    two blocks at most (any verify pass of up to nine rows does).
    """
    tokens: list[int] = []
    positions: list[int] = []
    kv_rows: list[int] = []
    attention: list[AttentionJob] = []
    for span in spans:
        stop = span.position + len(span.tokens)
        attention += attention_jobs(span.pages, span.position, stop, len(tokens), page_size, device)
        tokens += span.tokens
        positions += range(span.position, stop)
        kv_rows += pool_rows(span.pages, span.position, stop, page_size)
    indices = torch.tensor((tokens, positions, kv_rows), dtype=torch.int64).to(device)
    return Pass(
        tuple(spans), len(tokens), indices[0], indices[1], indices[2],
        tuple(attention), _block_plan(spans, taps, device),
    )  # fmt: skip


def pool_rows(pages: list[int], start: int, stop: int, page_size: int) -> list[int]:
    """Rows of the KV pool that hold positions ``start`` to ``stop - 1``."""
    return [pages[i // page_size] * page_size + i % page_size for i in range(start, stop)]


def attention_jobs(
    pages: list[int], start: int, stop: int, first: int, page_size: int, device: torch.device
) -> list[AttentionJob]:
    """Cut positions ``start`` to ``stop - 1`` at the edges of KV blocks."""
    jobs: list[AttentionJob] = []
    position = start
    while position < stop:
        width = (position // KV_BLOCK + 1) * KV_BLOCK
        rows = min(stop, width) - position
        held = -(-width // page_size)
        run = one_run(pages, held)
        jobs.append(
            AttentionJob(
                first + position - start,
                rows,
                position % KV_BLOCK,
                width,
                pages[0] * page_size if run else None,
                None if run else torch.tensor(pages[:held], device=device),
                page_size,
            )
        )
        position += rows
    return jobs


def _block_plan(spans: Seq[Span], taps: int, device: torch.device) -> BlockPlan:
    per_span: list[list[BlockJob]] = []
    first = 0
    for span in spans:
        jobs: list[BlockJob] = []
        position, stop = span.position, span.position + len(span.tokens)
        while position < stop:
            block, offset = divmod(position, BLOCK)
            rows = min(BLOCK - offset, stop - position)
            jobs.append(BlockJob(span.slot, block, offset, rows, first))
            first += rows
            position += rows
        per_span.append(jobs)
    if len(per_span) == 1:
        jobs = per_span[0]
        each = tuple((i, i + 1) for i in range(len(jobs)))
        return BlockPlan(tuple(jobs), each, None, _runs_on(jobs, device))
    ordered: list[BlockJob] = []
    rounds: list[tuple[int, int]] = []
    deepest = max(len(jobs) for jobs in per_span)
    assert deepest <= 2, "several sequences in one pass may touch two blocks each"
    for index in range(deepest):
        begin = len(ordered)
        ordered += [jobs[index] for jobs in per_span if index < len(jobs)]
        rounds.append((begin, len(ordered)))
    gather = _gather(ordered, first, taps, device)
    return BlockPlan(tuple(ordered), tuple(rounds), gather, _runs_on(ordered, device))


def _runs_on(jobs: Seq[BlockJob], device: torch.device) -> BlockRuns | None:
    return block_runs(jobs, device) if device.type == "cuda" else None


def block_runs(jobs: Seq[BlockJob], device: torch.device) -> BlockRuns:
    """``jobs`` by slot, each slot's in the order given."""
    by_slot: dict[int, list[list[int]]] = {}
    for number, job in enumerate(jobs):
        fact = [number, job.slot, job.parity, int(job.completes)]
        by_slot.setdefault(job.slot, []).append(fact)
    edges, ordered = [0], []
    for facts in by_slot.values():
        ordered += facts
        edges.append(len(ordered))
    flat = [n for fact in ordered for n in fact]
    both = torch.tensor(flat + edges, dtype=torch.int32).to(device)
    return BlockRuns(both[: len(flat)].view(-1, 4), both[len(flat) :], len(by_slot))


def _gather(jobs: list[BlockJob], rows: int, taps: int, device: torch.device) -> BlockGather:
    height = taps + BLOCK
    index: tuple[list[int], ...] = ([], [], [], [], [], [0] * rows)
    source, target, tail_source, tail_target, windows, out = index
    for j, job in enumerate(jobs):
        buffer = job.slot * 2 + job.parity
        base = buffer * height
        windows.append(buffer)
        source += range(job.first, job.first + job.rows)
        target += range(base + taps + job.offset, base + taps + job.offset + job.rows)
        if job.completes:
            other = (job.slot * 2 + 1 - job.parity) * height
            tail_source += range(base + BLOCK, base + BLOCK + taps)
            tail_target += range(other, other + taps)
        for i in range(job.rows):
            out[job.first + i] = j * BLOCK + job.offset + i
    tensors = [torch.tensor(part, dtype=torch.int64).to(device) for part in index]
    return BlockGather(*tensors)
