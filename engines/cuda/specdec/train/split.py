"""The split: which documents are held out, and proof that no 50-token span is shared.

Documents are divided by the hash of their name. Code repeats itself (licence headers, copied
helpers), so a held-out document is then cut down to the stretches in which no 50-token window
also stands in training text; what is too short afterwards is dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPAN_TOKENS = 50
_BASE = np.uint64(0x9E3779B97F4A7C15)

Ids = NDArray[np.uint16]
Hashes = NDArray[np.uint64]


def is_held_out(source: str, path: str, per_mille: int) -> bool:
    """Whether a document belongs to the held-out side, from its name alone."""
    digest = hashlib.sha256(f"held-out/{source}/{path}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 1000 < per_mille


def window_hashes(ids: Ids, span: int = SPAN_TOKENS) -> Hashes:
    """A 64-bit hash of every window of ``span`` tokens, [len - span + 1] (empty when shorter)."""
    count = len(ids) - span + 1
    if count <= 0:
        return np.empty(0, np.uint64)
    hashes = np.zeros(count, np.uint64)
    values = ids.astype(np.uint64) + np.uint64(1)
    with np.errstate(over="ignore"):
        for offset in range(span):
            hashes = hashes * _BASE + values[offset : offset + count]
            hashes ^= hashes >> np.uint64(29)
    return hashes


@dataclass(frozen=True)
class SpanIndex:
    """The sorted window hashes of some text, to ask whether another text shares a window."""

    hashes: Hashes
    span: int = SPAN_TOKENS

    @classmethod
    def of(cls, texts: Iterable[Ids], span: int = SPAN_TOKENS) -> SpanIndex:
        parts = [window_hashes(ids, span) for ids in texts]
        joined = np.concatenate(parts) if parts else np.empty(0, np.uint64)
        return cls(np.unique(joined), span)

    def shared(self, ids: Ids) -> NDArray[np.bool_]:
        """For each window of ``ids``, whether the indexed text holds it too."""
        wanted = window_hashes(ids, self.span)
        if not len(self.hashes):
            return np.zeros(len(wanted), np.bool_)
        place = np.searchsorted(self.hashes, wanted)
        found = self.hashes[np.minimum(place, len(self.hashes) - 1)]
        matches: NDArray[np.bool_] = found == wanted
        return matches

    def clean_stretches(self, ids: Ids, least_tokens: int) -> list[Ids]:
        """Stretches of at least ``least_tokens`` tokens in which no window is shared."""
        shared = self.shared(ids)
        stretches, start, used = [], 0, 0
        for window in [*np.flatnonzero(shared).tolist(), len(shared)]:
            # Windows start..window-1 are clean: their tokens reach to window + span - 2.
            stop = window + self.span - 1
            begin = max(start, used)  # neighbours of one shared window must not repeat tokens
            if window > start and stop - begin >= least_tokens:
                stretches.append(ids[begin:stop])
                used = stop
            start = window + 1
        return stretches


def first_overlap(index: SpanIndex, texts: Sequence[Ids]) -> tuple[int, int] | None:
    """(text, window) of the first shared span, or None when the texts share none."""
    for number, ids in enumerate(texts):
        hits = np.flatnonzero(index.shared(ids))
        if len(hits):
            return number, int(hits[0])
    return None
