"""Copies of a sequence's recurrent state, and how many of them are kept.

A copy is one buffer of each Gated DeltaNet layer (``state.py``): the state before a block of
``BLOCK`` positions and the raw rows of the block up to where it was taken. What the rows say of
later positions is not read, so one copy serves every position from the block's start to its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from specdec.contract import DENSE_LIMIT, DENSE_STEP
from specdec.plan import BLOCK
from specdec.state import DeltaState, ModelState


@dataclass(eq=False)
class Snapshot:
    """State from which a sequence may go on at any position of ``start`` to ``stop``.

    ``layers``: (matrix [value heads, key dim, value dim], rows [taps + BLOCK, width]) of each
    recurrent layer. ``kept``: what the drafter needs of the positions before ``stop``
    (``Drafter.keep``: for an MTP head the target's hidden row of the last one); None without a
    drafter that needs anything, or where it was not at hand. ``live``: the end of a request rather
    than a point on its way.
    """

    start: int
    stop: int
    layers: tuple[tuple[Tensor, Tensor], ...]
    kept: Tensor | None
    live: bool

    @property
    def size_bytes(self) -> int:
        tensors = [tensor for layer in self.layers for tensor in layer]
        if self.kept is not None:
            tensors.append(self.kept)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def next_boundary(position: int, interval: int) -> int | None:
    """The first position after ``position`` where a snapshot is due: every ``DENSE_STEP`` up to
    ``DENSE_LIMIT``, then every ``interval`` (0: none there)."""
    dense = (position // DENSE_STEP + 1) * DENSE_STEP
    if dense <= DENSE_LIMIT:
        return dense
    return (position // interval + 1) * interval if interval else None


def capture(state: ModelState, slot: int, stop: int, kept: Tensor | None, live: bool) -> Snapshot:
    """Copy a slot's state at ``stop``, which lies in the slot's present block or at most at the
    end of the one before it."""
    block = stop // BLOCK
    layers = tuple(
        (layer.matrix[slot, block % 2].clone(), layer.rows[slot, block % 2].clone())
        for layer in state.layers
        if isinstance(layer, DeltaState)
    )
    return Snapshot(block * BLOCK, stop, layers, None if kept is None else kept.clone(), live)


def restore(state: ModelState, slot: int, snapshot: Snapshot) -> None:
    """Put a snapshot into a slot; the sequence goes on at any of its positions."""
    buffer = snapshot.start // BLOCK % 2
    layers = [layer for layer in state.layers if isinstance(layer, DeltaState)]
    for layer, (matrix, rows) in zip(layers, snapshot.layers, strict=True):
        layer.matrix[slot, buffer].copy_(matrix)
        layer.rows[slot, buffer].copy_(rows)


class SnapshotStore:
    """The snapshots that exist, least recently used first, within a number and a size."""

    def __init__(self, most: int, most_bytes: int, on_evict: Callable[[Snapshot], None]) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._on_evict = on_evict
        self._sizes: dict[Snapshot, int] = {}
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, snapshot: Snapshot) -> bool:
        return snapshot in self._sizes

    def add(self, snapshot: Snapshot) -> bool:
        """Keep a snapshot, forgetting the least recently used for it. False if it is too large."""
        size = snapshot.size_bytes
        if size > self._most_bytes:
            return False
        while len(self._sizes) >= self._most or self.total_bytes + size > self._most_bytes:
            oldest = next(iter(self._sizes))
            self.drop(oldest)
            self._on_evict(oldest)
        self._sizes[snapshot] = size
        self.total_bytes += size
        return True

    def touch(self, snapshot: Snapshot) -> None:
        """It was used."""
        self._sizes[snapshot] = self._sizes.pop(snapshot)

    def drop(self, snapshot: Snapshot) -> None:
        """Forget one; the caller takes it from wherever it hangs."""
        self.total_bytes -= self._sizes.pop(snapshot)

    def check_integrity(self, hanging: list[Snapshot]) -> None:
        """Raise AssertionError unless exactly these exist, each once, and the sizes add up."""
        assert len(hanging) == len(set(hanging)), "a snapshot hangs in two places"
        assert set(hanging) == set(self._sizes), "a snapshot is lost or hangs nowhere"
        assert self.total_bytes == sum(s.size_bytes for s in hanging), "the bytes do not add up"
        assert len(self._sizes) <= self._most, "there are too many snapshots"
        assert self.total_bytes <= self._most_bytes, "snapshots take too many bytes"
