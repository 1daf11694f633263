"""Slots and pages of running sequences: who sits where, and what giving up a seat cleans."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from specdec.errors import PoolExhausted
from specdec.pages import Pages
from specdec.request import Phase, Sequence
from specdec.state import ModelState


class Seats:
    """``slots`` recurrent slots and the KV pages; ``state`` is clean for whoever comes next."""

    def __init__(self, pages: Pages, slots: int, state: ModelState) -> None:
        self.pages = pages
        self._state = state
        self._slots = list(range(slots))[::-1]

    @property
    def free_slots(self) -> int:
        return len(self._slots)

    def fits(self, seq: Sequence) -> bool:
        """A slot is free, and pages for all present tokens and one more."""
        needed = self.pages.missing(0, seq.total_tokens + 1)
        return bool(self._slots) and needed <= self.pages.free_pages()

    def take(self, seq: Sequence) -> None:
        """WAITING to PREFILL. Raises PoolExhausted before any change."""
        assert seq.phase is Phase.WAITING
        if not self._slots:
            raise PoolExhausted("No slot is free.", "Wait for a running request to end.")
        self.grow(seq, seq.total_tokens + 1)
        seq.slot = self._slots.pop()
        self._state.clear_slot(seq.slot)
        seq.phase = Phase.PREFILL

    def short(self, seqs: Seq[Sequence]) -> int:
        """Pages missing for one more row of every sequence."""
        needed = sum(self.pages.missing(len(seq.pages), seq.total_tokens) for seq in seqs)
        return max(0, needed - self.pages.free_pages())

    def grow(self, seq: Sequence, tokens: int) -> None:
        """Pages for ``tokens`` positions. Raises PoolExhausted before any change."""
        missing = self.pages.missing(len(seq.pages), tokens)
        if missing:
            expected = len(seq.prompt_ids) + seq.params.max_new_tokens
            # Owned by the object, not by its id: two requests may carry the same one.
            self.pages.grow(seq, seq.pages, missing, expected)

    def grow_for_drafts(self, seq: Sequence, width: int) -> int:
        """Pages for ``width`` rows more, or for as many as there are; returns how many."""
        while self.pages.missing(len(seq.pages), seq.total_tokens + width) > (
            self.pages.free_pages()
        ):
            width -= 1
        self.grow(seq, seq.total_tokens + width)
        return width

    def leave(self, seq: Sequence) -> None:
        """Give back everything; a masked row still meets a zero weight, so rows are cleared."""
        size = self.pages.page_size
        for page in self.pages.give_back(seq):
            self._state.clear_rows(page * size, (page + 1) * size)
        if seq.slot is not None:
            self._slots.append(seq.slot)
            seq.slot = None
        seq.computed = 0
