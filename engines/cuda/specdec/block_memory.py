"""Where a block drafter's context rows lie: beside the target's, or in a ring of its own.

A context row is made from one committed position of the target and never changes. Shared rows have
the target's pool indices, so that pages carry them from one request to the next. A ring has as
many rows a slot as a block can see, and positions wrap around in it: a pool of a million tokens
then costs the drafter nothing. What a ring held before a prefix hit is written again, from rows
that a snapshot kept.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Protocol

import torch
from torch import Tensor

from specdec.draft_facts import KvShape
from specdec.pages import one_run
from specdec.plan import BLOCK, pool_rows
from specdec.request import Sequence
from specdec.state import KvState


def ring_stride(window: int, block: int, page_size: int) -> int:
    """Rows of one slot's ring: window and block up to whole pages, and one page more, so that a
    page begins anew before its oldest row is last seen."""
    return -(-(window + block) // page_size) * page_size + page_size


class ContextRows(Protocol):
    """Rows of every draft layer, by sequence and position."""

    @property
    def layers(self) -> Seq[KvState]: ...

    def begin(self, seq: Sequence) -> None:
        """The sequence has a slot; nothing of it is written yet."""
        ...

    def oldest(self, seq: Sequence, first: int, stop: int) -> int:
        """The first of positions ``first`` to ``stop - 1`` that is worth writing."""
        ...

    def places(self, seq: Sequence, first: int, stop: int) -> list[int]:
        """The rows of positions ``first`` to ``stop - 1``."""
        ...

    def read(self, layer: int, seq: Sequence, first: int, stop: int) -> tuple[Tensor, Tensor]:
        """Keys and values [positions, KV heads, dim] of positions ``first`` to ``stop - 1``."""
        ...

    def note(self, seq: Sequence, first: int, features: Tensor) -> None:
        """Features [rows, hidden] of positions from ``first`` on were written."""
        ...

    def keep(self, seq: Sequence, stop: int) -> Tensor | None:
        """Features that a resumed sequence will need written again; None if none."""
        ...

    def forget(self, seq: Sequence) -> None: ...

    def reset(self) -> None: ...

    def check_integrity(self) -> None: ...


class SharedRows:
    """The pool's rows: the page table is the target's."""

    def __init__(self, layers: Seq[KvState], page_size: int) -> None:
        self.layers: Seq[KvState] = layers
        self._page_size = page_size

    def begin(self, seq: Sequence) -> None:
        pass

    def oldest(self, seq: Sequence, first: int, stop: int) -> int:
        return first

    def places(self, seq: Sequence, first: int, stop: int) -> list[int]:
        return pool_rows(seq.pages, first, stop, self._page_size)

    def read(self, layer: int, seq: Sequence, first: int, stop: int) -> tuple[Tensor, Tensor]:
        size, kv = self._page_size, self.layers[layer]
        begin = first // size
        pages = seq.pages[begin : -(-stop // size)]
        if not pages:
            return kv.keys[:0], kv.values[:0]
        at, rows = first - begin * size, stop - first
        if one_run(pages, len(pages)):
            start = pages[0] * size + at
            return kv.keys[start : start + rows], kv.values[start : start + rows]
        index = torch.tensor(pages, device=kv.keys.device)
        paged = [part.unflatten(0, (-1, size)) for part in (kv.keys, kv.values)]
        keys, values = (part.index_select(0, index).flatten(0, 1) for part in paged)
        return keys[at : at + rows], values[at : at + rows]

    def note(self, seq: Sequence, first: int, features: Tensor) -> None:
        pass

    def keep(self, seq: Sequence, stop: int) -> Tensor | None:
        return None

    def forget(self, seq: Sequence) -> None:
        pass

    def reset(self) -> None:
        pass

    def check_integrity(self) -> None:
        pass


class RingRows:
    """``stride`` rows for each of ``slots``, and as many feature rows to be kept from."""

    def __init__(
        self,
        shapes: Seq[KvShape],
        hidden: int,
        window: int,
        stride: int,
        slots: int,
        device: torch.device,
    ) -> None:
        rows = slots * stride
        self.layers: Seq[KvState] = [
            KvState(
                torch.zeros(rows, shape.heads, shape.dim, device=device),
                torch.zeros(rows, shape.heads, shape.dim, device=device),
            )
            for shape in shapes
        ]
        self._features = torch.zeros(rows, hidden, device=device)
        self._window = window
        self._stride = stride
        self._slots = slots
        self._from: dict[Sequence, int] = {}  # the first position that is in the ring

    def begin(self, seq: Sequence) -> None:
        self._from[seq] = seq.computed

    def oldest(self, seq: Sequence, first: int, stop: int) -> int:
        return max(first, stop - self._stride)

    def places(self, seq: Sequence, first: int, stop: int) -> list[int]:
        assert seq.slot is not None
        assert stop - first <= self._stride
        base = seq.slot * self._stride
        return [base + position % self._stride for position in range(first, stop)]

    def read(self, layer: int, seq: Sequence, first: int, stop: int) -> tuple[Tensor, Tensor]:
        assert first >= self._from[seq], "a row is read that is not in the ring"
        kv = self.layers[layer]
        pieces = [(kv.keys[a:b], kv.values[a:b]) for a, b in self._runs(seq, first, stop)]
        if len(pieces) == 1:
            return pieces[0]
        return torch.cat([keys for keys, _ in pieces]), torch.cat([values for _, values in pieces])

    def _runs(self, seq: Sequence, first: int, stop: int) -> list[tuple[int, int]]:
        assert seq.slot is not None
        assert stop - first <= self._stride
        base, start = seq.slot * self._stride, first % self._stride
        end = start + stop - first
        if end <= self._stride:
            return [(base + start, base + end)]
        return [(base + start, base + self._stride), (base, base + end - self._stride)]

    def note(self, seq: Sequence, first: int, features: Tensor) -> None:
        places = self.places(seq, first, first + len(features))
        self._features[places] = features
        # Rows further back than the stride have been written over.
        self._from[seq] = max(min(self._from[seq], first), first + len(features) - self._stride)

    def keep(self, seq: Sequence, stop: int) -> Tensor | None:
        """The tail that a block at ``stop``, or up to a block of the recurrence before it, sees."""
        first = max(self._from[seq], stop - (self._window - 1) - BLOCK)
        return torch.cat([self._features[a:b] for a, b in self._runs(seq, first, stop)])

    def forget(self, seq: Sequence) -> None:
        self._from.pop(seq, None)

    def reset(self) -> None:
        held = {seq.slot for seq in self._from}
        for slot in set(range(self._slots)) - held:
            rows = slice(slot * self._stride, (slot + 1) * self._stride)
            for tensor in (
                self._features,
                *(t for kv in self.layers for t in (kv.keys, kv.values)),
            ):
                tensor[rows].zero_()

    def check_integrity(self) -> None:
        slots = [seq.slot for seq in self._from]
        assert len(slots) == len(set(slots)), "two sequences share a ring"
        assert None not in slots, "a sequence without a slot holds a ring"
