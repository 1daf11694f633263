"""What a running sequence leaves in the prefix cache, and when.

During prefill and decode a snapshot is taken at each due position (``snapshots.next_boundary``),
after the prompt one from which a repeat of it can go on, and at the end one of the end itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.drafting import MtpDrafter
from specdec.plan import BLOCK
from specdec.prefix import PrefixCache
from specdec.request import Sequence
from specdec.resume import Resume
from specdec.snapshots import capture, next_boundary
from specdec.state import ModelState


class Keeper:
    """Feeds ``cache`` from ``state``. ``interval``: positions between late snapshots, 0 for none.

    ``drafter`` is the one whose rows lie in the pages, if there is one. Another kind of drafter
    needs ``settle`` (write the rows it still owes, give what its next row needs) and ``remember``.
    """

    def __init__(
        self, cache: PrefixCache, state: ModelState, drafter: MtpDrafter | None, interval: int
    ) -> None:
        self._cache = cache
        self._state = state
        self._drafter = drafter
        self._interval = interval

    def edge(self, position: int) -> int | None:
        """Where a prefill pass from ``position`` has to end at the latest."""
        return next_boundary(position, self._interval)

    def begin(self, seq: Sequence, resume: Resume) -> None:
        """The sequence was admitted there; give its drafter the row it has to write again."""
        if resume.rewrite and self._drafter is not None:
            assert resume.snapshot is not None
            assert resume.snapshot.boundary is not None
            self._drafter.remember(seq, resume.snapshot.boundary)

    def after_piece(self, seq: Sequence, begin: int, hidden: Tensor) -> None:
        """Positions ``begin`` to ``seq.computed - 1`` were computed, ``hidden`` [rows, hidden] of
        them all; a snapshot is taken where one was due among them."""
        due = next_boundary(begin, self._interval)
        if due is not None and due <= seq.computed:
            self._take(seq, due, hidden[due - begin - 1 :][:1])

    def after_step(self, seq: Sequence, hidden: Tensor) -> None:
        """A decode step committed the positions of ``hidden``; exact rows are as good as a
        prefill's."""
        if self._cache.rules.exact:
            self.after_piece(seq, seq.computed - len(hidden), hidden)

    @torch.inference_mode()
    def after_chunk(self, seq: Sequence, hidden: Tensor) -> None:
        """A prefill chunk is done. Its rows enter the cache if its last one is finite, as no row is
        behind one that is not."""
        if not bool(torch.isfinite(hidden[-1]).all()):
            self._cache.spoil(seq)
            return
        if seq.computed == seq.prefill_goal and not seq.output_ids:
            self._after_prompt(seq, hidden)
        # The drafter's newest row is not written yet.
        self._cache.extend(seq, self._final(seq, seq.computed - 1))

    def _after_prompt(self, seq: Sequence, hidden: Tensor) -> None:
        """The prompt's last block, from which the prompt without its last token can go on."""
        prompt = seq.computed
        offset = prompt % BLOCK
        if not self._cache.rules.exact:
            stop = (prompt - 1) // BLOCK * BLOCK
        else:
            stop = prompt if offset else prompt - 1
        behind = prompt - stop + 1  # rows from the boundary's on
        boundary = hidden[-behind:][:1] if behind <= len(hidden) else None
        if stop > 0:
            self._take(seq, stop, boundary)

    @torch.inference_mode()
    def end(self, seq: Sequence, keep: bool) -> None:
        """The sequence gives up its seat. ``keep`` false: nothing of it is to be trusted."""
        if seq.slot is None:
            return
        fresh = seq.computed > seq.resumed_at
        if not (keep and fresh):
            self._cache.abandon(seq)
            return
        boundary = self._drafter.settle(seq) if self._drafter is not None else None
        exact = self._cache.rules.exact
        live = capture(self._state, seq.slot, seq.computed, boundary, True) if exact else None
        if exact and seq.computed % BLOCK == 0:
            # At a block's edge the state behind serves no earlier position, and who comes with
            # the same tokens has to compute the last one again.
            self._take(seq, seq.computed - 1, None)
        self._cache.close(seq, self._final(seq, seq.computed), live)

    def _final(self, seq: Sequence, rows: int) -> int:
        """How many of the first ``rows`` rows are bitwise those of a cold prefill."""
        if self._cache.rules.exact:
            return rows
        return min(rows, len(seq.prompt_ids)) // BLOCK * BLOCK

    def _take(self, seq: Sequence, stop: int, boundary: Tensor | None) -> None:
        assert seq.slot is not None
        kept = boundary if self._drafter is not None else None
        self._cache.note(seq, capture(self._state, seq.slot, stop, kept, False))
