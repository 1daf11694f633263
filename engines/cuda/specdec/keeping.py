"""What a running sequence leaves in the prefix cache, and when.

During prefill and decode a snapshot is taken at each due position (``snapshots.next_boundary``),
after the prompt one from which a repeat of it can go on, and at the end one of the end itself.
"""

from __future__ import annotations

import torch

from specdec.drafter import Drafter
from specdec.plan import BLOCK
from specdec.prefix import PrefixCache
from specdec.request import Sequence
from specdec.rows import Rows
from specdec.snapshots import capture, next_boundary
from specdec.state import ModelState


class Keeper:
    """Feeds ``cache`` from ``state``. ``interval``: positions between late snapshots, 0 for none.

    Each call names the drafter, which has been given the rows before: a snapshot holds what the
    drafter wants kept beside the recurrent state.
    """

    def __init__(self, cache: PrefixCache, state: ModelState, interval: int) -> None:
        self._cache = cache
        self._state = state
        self._interval = interval

    def edge(self, position: int) -> int | None:
        """Where a prefill pass from ``position`` has to end at the latest."""
        return next_boundary(position, self._interval)

    def after_piece(self, seq: Sequence, begin: int, drafter: Drafter | None) -> None:
        """Positions ``begin`` to ``seq.computed - 1`` were computed; a snapshot is taken where one
        was due among them."""
        due = next_boundary(begin, self._interval)
        if due is not None and due <= seq.computed:
            self._take(seq, due, drafter)

    def after_step(self, seq: Sequence, rows: int, drafter: Drafter | None) -> None:
        """A decode step committed ``rows`` positions; exact rows are as good as a prefill's."""
        if self._cache.rules.exact:
            self.after_piece(seq, seq.computed - rows, drafter)

    @torch.inference_mode()
    def after_chunk(self, seq: Sequence, rows: Rows, drafter: Drafter | None) -> None:
        """A prefill chunk is done, and the drafter not primed yet. What it computed enters the
        cache if its last row is finite, as no row is behind one that is not."""
        if not bool(torch.isfinite(rows.hidden[-1]).all()):
            self._cache.spoil(seq)
        elif seq.computed == seq.prefill_goal and not seq.output_ids:
            self._after_prompt(seq, drafter)

    def publish(self, seq: Sequence) -> None:
        """The chunk's rows are final, the drafter's among them but for its newest."""
        if not self._cache.is_spoiled(seq):
            self._cache.extend(seq, self._final(seq, seq.computed - 1))

    def _after_prompt(self, seq: Sequence, drafter: Drafter | None) -> None:
        """The prompt's last block, from which the prompt without its last token can go on."""
        prompt = seq.computed
        if not self._cache.rules.exact:
            stop = (prompt - 1) // BLOCK * BLOCK
        else:
            stop = prompt if prompt % BLOCK else prompt - 1
        if stop > 0:
            self._take(seq, stop, drafter)

    @torch.inference_mode()
    def end(self, seq: Sequence, keep: bool, drafter: Drafter | None) -> None:
        """The sequence gives up its seat. ``keep`` false: nothing of it is to be trusted."""
        if seq.slot is None:
            return
        fresh = seq.computed > seq.resumed_at
        if not (keep and fresh):
            self._cache.abandon(seq)
            return
        if drafter is not None:
            drafter.settle(seq)
        live = None
        if self._cache.rules.exact:
            kept = drafter.keep(seq, seq.computed) if drafter is not None else None
            live = capture(self._state, seq.slot, seq.computed, kept, True)
            if seq.computed % BLOCK == 0:
                # At a block's edge the state behind serves no earlier position, and who comes with
                # the same tokens has to compute the last one again.
                self._take(seq, seq.computed - 1, drafter)
        self._cache.close(seq, self._final(seq, seq.computed), live)

    def _final(self, seq: Sequence, rows: int) -> int:
        """How many of the first ``rows`` rows are bitwise those of a cold prefill."""
        if self._cache.rules.exact:
            return rows
        return min(rows, len(seq.prompt_ids)) // BLOCK * BLOCK

    def _take(self, seq: Sequence, stop: int, drafter: Drafter | None) -> None:
        assert seq.slot is not None
        kept = drafter.keep(seq, stop) if drafter is not None else None
        self._cache.note(seq, capture(self._state, seq.slot, stop, kept, False))
