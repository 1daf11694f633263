"""Is there anything in a tensor? Sampled through a memory map, in bounded time.

A name that failed to resolve leaves a tensor at its zero initialisation, and coherent target
output hides it. Samples that are all zero are followed by a look at the whole tensor.
"""

from __future__ import annotations

import mmap
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from qualify.inspect.headers import Head
from qualify.inspect.nouns import Fault

BLOCK = 1 << 16
BLOCKS = 16  # evenly spread; a tensor of at most this many blocks is read whole
SECONDS = 120.0

# Rightly all zero in some checkpoints: what is added, and offsets of packed integers.
_MAY_BE_ZERO = ("bias", "zero_point", "qzeros", "g_idx", "zeros")


@dataclass(frozen=True)
class Looked:
    """unread: tensors that were not looked at because the time was over."""

    faults: tuple[Fault, ...]
    tensors: int
    read_bytes: int
    seconds: float
    unread: tuple[str, ...]


def look(heads: Iterable[Head], *, seconds: float = SECONDS) -> Looked:
    """Each tensor's payload: empty, all zero, or with an infinity or NaN among the samples."""
    began = time.monotonic()
    faults: list[Fault] = []
    unread: list[str] = []
    count = read = 0
    for head in heads:
        if time.monotonic() - began > seconds:
            unread.append(head.name)
            continue
        count += 1
        fault, used = _one(head)
        read += used
        if fault is not None:
            faults.append(fault)
    return Looked(tuple(faults), count, read, time.monotonic() - began, tuple(unread))


def _one(head: Head) -> tuple[Fault | None, int]:
    size = head.end - head.begin
    if size == 0:
        return Fault("empty", head.name, f"{head.name} has no bytes (shape {head.shape})."), 0
    with head.file.open("rb") as stream:
        base = head.begin - head.begin % mmap.ALLOCATIONGRANULARITY
        with mmap.mmap(
            stream.fileno(), head.end - base, access=mmap.ACCESS_READ, offset=base
        ) as data:
            skip = head.begin - base
            whole = size <= BLOCK * BLOCKS
            starts = range(0, size, BLOCK) if whole else _spread(size)
            samples = [data[skip + at : skip + min(at + BLOCK, size)] for at in starts]
            used = sum(map(len, samples))
            if any(_some(block) for block in samples):
                return _not_finite(head, samples), used
            if not whole and any(
                _some(data[skip + at : skip + min(at + (1 << 22), size)])
                for at in range(0, size, 1 << 22)
            ):
                return None, size
    if head.name.endswith(_MAY_BE_ZERO):
        return None, size
    return Fault(
        "zero", head.name, f"{head.name} {list(head.shape)} holds nothing but zeros."
    ), size


def _spread(size: int) -> list[int]:
    """Starts of BLOCKS blocks from the first byte to the last, on even eights."""
    step = (size - BLOCK) / (BLOCKS - 1)
    return [int(i * step) // 8 * 8 for i in range(BLOCKS)]


def _some(block: bytes) -> bool:
    """Any byte that is not zero; -0.0 counts as one, and never fills a trained tensor."""
    return block.count(0) != len(block)


def _not_finite(head: Head, samples: list[bytes]) -> Fault | None:
    """All exponent bits set: an infinity or NaN, in the first or the last sample."""
    mask = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000}.get(head.dtype)
    if mask is None:
        return None
    for block in {samples[0], samples[-1]}:
        values = array("I" if head.dtype == "F32" else "H")
        values.frombytes(block[: len(block) - len(block) % values.itemsize])
        if any(value & mask == mask for value in values):
            return Fault("not-finite", head.name, f"{head.name} holds an infinity or a NaN.")
    return None
