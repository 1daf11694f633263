"""Lay a pass's raw rows beside the rows before them, block by block, and remember them.

A slot keeps two row buffers (``DeltaState.rows``), one for the block it is in and one for the block
before or after it, each headed by the rows that the convolution still reads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.plan import BLOCK, BlockGather, BlockJob, Pass


def block_windows(raw: Tensor, plan: Pass, memory: Tensor) -> Tensor:
    """[rows, width] raw rows to [J, taps + BLOCK, width], one window a job; updates ``memory``.

    Rows of a block that are not there yet are zero or left from rejected drafts: finite, and no row
    before them reads them.
    """
    jobs, gather = plan.blocks.jobs, plan.blocks.gather
    if gather is not None:
        return _many(raw, gather, memory)
    if len(jobs) == 1:
        return _within_one_block(raw, jobs[0], memory)
    return _stream(raw, jobs, memory)


def _taps(memory: Tensor) -> int:
    return int(memory.shape[2]) - BLOCK


def _within_one_block(raw: Tensor, job: BlockJob, memory: Tensor) -> Tensor:
    taps = _taps(memory)
    rows = memory[job.slot, job.parity]
    rows[taps + job.offset : taps + job.offset + job.rows] = raw
    if job.completes:
        memory[job.slot, 1 - job.parity, :taps] = rows[BLOCK:]
    return rows.unsqueeze(0)


def _stream(raw: Tensor, jobs: tuple[BlockJob, ...], memory: Tensor) -> Tensor:
    """One sequence over several blocks: the windows overlap in one row of memory."""
    taps, width = _taps(memory), raw.shape[1]
    first, last = jobs[0], jobs[-1]
    parts = [memory[first.slot, first.parity, : taps + first.offset], raw]
    missing = BLOCK - last.offset - last.rows
    if missing:
        parts.append(torch.zeros(missing, width, device=raw.device))
    stream = torch.cat(parts)
    windows = stream.as_strided(
        (len(jobs), taps + BLOCK, width), (BLOCK * width, width, 1), stream.storage_offset()
    )
    for job, window in ((jobs[-2], windows[-2]), (last, windows[-1])):
        memory[job.slot, job.parity] = window
    if last.completes:
        memory[last.slot, 1 - last.parity, :taps] = stream[-taps:]
    return windows


def _many(raw: Tensor, gather: BlockGather, memory: Tensor) -> Tensor:
    """Several sequences, each over at most two blocks (a decode or verify pass)."""
    flat = memory.view(-1, raw.shape[1])
    flat.index_copy_(0, gather.target, raw.index_select(0, gather.source))
    if gather.tail_source.numel():
        flat.index_copy_(0, gather.tail_target, flat.index_select(0, gather.tail_source))
    return memory.view(-1, memory.shape[2], raw.shape[1]).index_select(0, gather.windows)
