"""What DFlash2 and DSpark have in common: a context made from verified rows, and one block a step.

Rows of the target that were committed wait here (``_owed``) until the next block or the end of a
prefill chunk, and are then projected into every layer's context, all sequences together. A block's
own keys and values are used once and kept nowhere: there is nothing to roll back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from specdec.block_backbone import BlockBackbone
from specdec.block_memory import ContextRows
from specdec.draft_facts import DraftFacts
from specdec.drafter import Drafter, Drafts
from specdec.request import Sequence
from specdec.rows import Rows
from specdec.speculate import next_average, width_of


class BlockDrafter(Drafter):
    """Drives a backbone over the context rows of ``memory``; a subclass chooses the tokens."""

    def __init__(
        self,
        facts: DraftFacts,
        backbone: BlockBackbone,
        memory: ContextRows,
        adaptive: bool,
        device: torch.device,
    ) -> None:
        self._facts = facts
        self._backbone = backbone
        self._memory = memory
        self._adaptive = adaptive
        self._device = device
        self._owed: dict[Sequence, Tensor] = {}  # taps of the last positions computed

    @property
    def facts(self) -> DraftFacts:
        return self._facts

    @abstractmethod
    def choose(self, seqs: Seq[Sequence], hidden: Tensor, widths: Seq[int]) -> list[Drafts]:
        """Tokens from the block's rows [sequences, block, hidden]."""

    def propose(self, seqs: Seq[Sequence], widths: Seq[int]) -> list[Drafts]:
        self._write(seqs)
        positions = [seq.computed for seq in seqs]
        anchors = [seq.token_at(position) for seq, position in zip(seqs, positions, strict=True)]

        def read(layer: int, i: int) -> tuple[Tensor, Tensor]:
            first = self._backbone.first_seen(positions[i])
            return self._memory.read(layer, seqs[i], first, positions[i])

        return self.choose(seqs, self._backbone.block(anchors, positions, read), widths)

    def learn(self, seq: Sequence, proposed: int, correct: int) -> None:
        if self._adaptive and proposed:
            most = self._facts.most
            before = float(most) if seq.accept_average is None else seq.accept_average
            seq.accept_average = next_average(before, correct)
            seq.draft_width = width_of(seq.accept_average, most)

    # Context

    def begin(self, seq: Sequence, kept: Tensor | None, stop: int, rewrite: bool) -> None:
        self._memory.begin(seq)
        if kept is not None:
            first = stop - len(kept)
            self._place([(seq, kept[: seq.computed - first], first)])

    def remember(self, seq: Sequence, rows: Rows) -> None:
        assert rows.taps is not None
        owed = self._owed.get(seq)
        self._owed[seq] = rows.taps if owed is None else torch.cat((owed, rows.taps))

    def prime(self, seq: Sequence) -> None:
        self._write([seq])

    def settle(self, seq: Sequence) -> None:
        self._write([seq])

    def keep(self, seq: Sequence, stop: int) -> Tensor | None:
        self._write([seq])
        return self._memory.keep(seq, stop)

    def forget(self, seq: Sequence) -> None:
        self._owed.pop(seq, None)
        self._memory.forget(seq)

    def reset(self) -> None:
        self._memory.reset()

    def check_integrity(self) -> None:
        self._memory.check_integrity()

    def _write(self, seqs: Seq[Sequence]) -> None:
        """Put what these sequences owe into their context."""
        owed = [(seq, self._owed.pop(seq)) for seq in seqs if seq in self._owed]
        if not owed:
            return
        features = self._backbone.features(torch.cat([taps for _, taps in owed]))
        pieces = features.split([len(taps) for _, taps in owed])
        self._place(
            [
                (seq, piece, seq.computed - len(piece))
                for (seq, _), piece in zip(owed, pieces, strict=True)
            ]
        )

    def _place(self, written: Seq[tuple[Sequence, Tensor, int]]) -> None:
        """Features of positions from ``first`` on, for each sequence."""
        positions: list[int] = []
        places: list[int] = []
        features: list[Tensor] = []
        for seq, rows, first in written:
            stop = first + len(rows)
            begin = self._memory.oldest(seq, first, stop)
            positions += range(begin, stop)
            places += self._memory.places(seq, begin, stop)
            features.append(rows[begin - first :])
            self._memory.note(seq, begin, features[-1])
        if not positions:
            return
        index = torch.tensor((positions, places)).to(self._device)
        every = self._backbone.context(torch.cat(features), index[0])
        for layer, (keys, values) in zip(self._memory.layers, every, strict=True):
            layer.write(index[1], keys, values)
