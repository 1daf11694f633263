"""Slots and pages of running sequences: who sits where, and what giving up a seat cleans."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

from specdec.errors import PoolExhausted
from specdec.pages import Pages
from specdec.prefix import PrefixCache
from specdec.request import Phase, Sequence
from specdec.resume import Resume
from specdec.state import ModelState


class Seats:
    """``slots`` recurrent slots and the KV pages; ``state`` is clean for whoever comes next.

    With a ``cache`` sequences begin behind what it knows of their tokens, and pages that it keeps
    for nobody in particular count as free: they are evicted when they are needed.
    """

    def __init__(
        self, pages: Pages, slots: int, state: ModelState, cache: PrefixCache | None = None
    ) -> None:
        self.pages = pages
        self._state = state
        self._cache = cache
        self._slots = list(range(slots))[::-1]

    @property
    def free_slots(self) -> int:
        return len(self._slots)

    def fits(self, seq: Sequence) -> bool:
        """A slot is free, and pages for all present tokens and one more."""
        return bool(self._slots) and self._beginning(seq) is not None

    def take(self, seq: Sequence) -> Resume:
        """WAITING to PREFILL, and where it resumed. Raises PoolExhausted before any change."""
        assert seq.phase is Phase.WAITING
        resume = self._beginning(seq)
        if not self._slots:
            raise PoolExhausted("No slot is free.", "Wait for a running request to end.")
        if resume is None:
            raise PoolExhausted(
                "The KV pool cannot hold the request now.", "Wait for a running request to end."
            )
        seq.slot = self._slots.pop()
        self._state.clear_slot(seq.slot)
        if self._cache is not None:
            self._cache.open(seq, resume, _expected(seq))
        self.grow(seq, seq.total_tokens + 1)
        seq.computed = seq.resumed_at = resume.position
        if seq.counters.retractions == 0:
            seq.cached_tokens = resume.position
            seq.matched_tokens = resume.matched
            seq.resume_source = resume.came_from
        seq.phase = Phase.PREFILL
        return resume

    def _beginning(self, seq: Sequence) -> Resume | None:
        """Where the sequence can begin with the pages that there are; None if nowhere."""
        cold = Resume()
        # The last position's logits are needed, so it is computed in any case.
        found = self._cache.find(seq, seq.prefill_goal - 1) if self._cache else cold
        for resume in (found, replace(cold, matched=found.matched)):
            spare = self._cache.spare_pages(resume) if self._cache else 0
            needed = self.pages.missing(len(resume.shared), seq.total_tokens + 1)
            if needed <= self.pages.free_pages() + spare:
                return resume
        return None

    def short(self, seqs: Seq[Sequence]) -> int:
        """Pages missing for one more row of every sequence."""
        needed = sum(self.pages.missing(len(seq.pages), seq.total_tokens) for seq in seqs)
        return max(0, needed - self._available())

    def grow(self, seq: Sequence, tokens: int) -> None:
        """Pages for ``tokens`` positions. Raises PoolExhausted before any change."""
        missing = self.pages.missing(len(seq.pages), tokens)
        if missing:
            if self._cache is not None:
                self._cache.evict(missing - self.pages.free_pages())
            # Owned by the object, not by its id: two requests may carry the same one.
            self.pages.grow(seq, seq.pages, missing, _expected(seq))

    def grow_for_drafts(self, seq: Sequence, width: int) -> int:
        """Pages for ``width`` rows more, or for as many as there are; returns how many."""
        while self.pages.missing(len(seq.pages), seq.total_tokens + width) > self._available():
            width -= 1
        self.grow(seq, seq.total_tokens + width)
        return width

    def _available(self) -> int:
        return self.pages.free_pages() + self.pages.evictable_tokens // self.pages.page_size

    def leave(self, seq: Sequence) -> None:
        """Give back everything; a masked row still meets a zero weight, so rows are cleared."""
        size = self.pages.page_size
        for page in self.pages.give_back(seq):
            self._state.clear_rows(page * size, (page + 1) * size)
        if seq.slot is not None:
            self._slots.append(seq.slot)
            seq.slot = None
        seq.computed = 0


def _expected(seq: Sequence) -> int:
    return len(seq.prompt_ids) + seq.params.max_new_tokens
