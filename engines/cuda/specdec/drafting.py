"""Drafts from the MTP head for a batch of sequences, and the rows it still owes.

The head's row i needs the target's hidden row i and token i + 1. Rows whose token is not known yet,
or that nobody has needed, wait here (``_owed``); each draft step first writes them. After a
rejection the rows that came from drafts are simply written again from the target's hidden rows, so
the head's keys and values never depend on what was proposed.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from specdec.contract import RunnerInfo
from specdec.draft_facts import DraftFacts, KvShape
from specdec.drafter import Drafter, Drafts, TargetSide
from specdec.mtp import MtpHead
from specdec.parallel.scores import Scores
from specdec.plan import AttentionJob, attention_jobs, pool_rows
from specdec.request import Sequence
from specdec.rows import Rows
from specdec.sampling import Purpose, distribution, draw, uniform
from specdec.speculate import next_width
from specdec.state import KvState, ModelState

DRAFT_STEPS = 3  # where the launch does not say


class MtpModel:
    """The head of a checkpoint's own ``mtp.*`` tensors, under the name of their class."""

    def __init__(self, side: TargetSide, tensors: dict[str, Tensor]) -> None:
        config = side.config
        self._head = MtpHead(config, tensors, side.products, side.shared)
        own = [tensor for name, tensor in tensors.items() if name.startswith("mtp.")]
        self._adaptive = side.options.adaptive
        self._device = side.device
        self.facts = DraftFacts(
            name="Qwen3_5ForCausalLMMTP",
            most=side.options.draft_steps or DRAFT_STEPS,
            follows=True,
            pool_kv=(KvShape(config.num_key_value_heads, config.head_dim),),
            parameters=sum(tensor.numel() for tensor in own),
            tensors=len(own),
        )

    def drafter(self, state: ModelState, info: RunnerInfo) -> MtpDrafter:
        (kv,) = state.drafter
        size = info.page_size
        return MtpDrafter(self._head, self.facts, kv, size, self._adaptive, self._device)


class MtpDrafter(Drafter):
    """Drives the head over pages of ``page_size`` rows in ``kv``."""

    def __init__(
        self,
        head: MtpHead,
        facts: DraftFacts,
        kv: KvState,
        page_size: int,
        adaptive: bool,
        device: torch.device,
    ) -> None:
        self._head = head
        self._facts = facts
        self._kv = kv
        self._page_size = page_size
        self._adaptive = adaptive
        self._device = device
        self._owed: dict[Sequence, Tensor] = {}  # hidden rows up to the last one computed

    @property
    def facts(self) -> DraftFacts:
        return self._facts

    def first_width(self) -> int:
        return 1 if self._adaptive else self._facts.most

    def learn(self, seq: Sequence, proposed: int, correct: int) -> None:
        if self._adaptive:
            seq.draft_width = next_width(seq.draft_width, proposed, correct, self._facts.most)

    def begin(self, seq: Sequence, kept: Tensor | None, stop: int, rewrite: bool) -> None:
        if rewrite:
            assert kept is not None
            assert stop == seq.computed
            self._owed[seq] = kept

    def remember(self, seq: Sequence, rows: Rows) -> None:
        owed = self._owed.get(seq)
        self._owed[seq] = rows.hidden if owed is None else torch.cat((owed, rows.hidden))

    def forget(self, seq: Sequence) -> None:
        self._owed.pop(seq, None)

    def keep(self, seq: Sequence, stop: int) -> Tensor | None:
        """The hidden row of ``stop - 1``, where it is still at hand."""
        owed = self._owed.get(seq)
        at = stop - 1 - (seq.computed - len(owed)) if owed is not None else -1
        return None if owed is None or at < 0 else owed[at : at + 1]

    def settle(self, seq: Sequence) -> None:
        """The token after the newest row is known now. The newest hidden row stays for ``keep``."""
        owed = self._owed.get(seq)
        if owed is not None:
            self._prime([(seq, owed, seq.computed - len(owed))])
            self._owed[seq] = owed[-1:]

    def prime(self, seq: Sequence) -> None:
        """Write all owed rows but the newest, which the next draft step needs whole."""
        rows = len(self._owed[seq]) - 1
        if rows:
            first = seq.computed - 1 - rows
            self._prime([(seq, self._owed[seq][:rows], first)])
            self._owed[seq] = self._owed[seq][rows:]

    def propose(self, seqs: Seq[Sequence], widths: Seq[int]) -> list[Drafts]:
        drafts = [Drafts() for _ in seqs]
        owed = [(seq, self._owed.pop(seq)) for seq in seqs]
        x, queries, gates = self._prime(
            [(seq, rows, seq.computed - len(rows)) for seq, rows in owed]
        )
        counts = torch.tensor([len(rows) for _, rows in owed])
        last = (counts.cumsum(0) - 1).to(self._device)
        x, queries, gates = (t.index_select(0, last) for t in (x, queries, gates))
        active = list(range(len(seqs)))
        depth = 0
        while True:
            jobs = [
                job
                for row, i in enumerate(active)
                for job in self._jobs(seqs[i], seqs[i].computed - 1 + depth, row)
            ]
            hidden, scores = self._head.predict(x, queries, gates, jobs, self._kv)
            self._choose(seqs, active, scores, drafts)
            depth += 1
            going = [
                row for row, i in enumerate(active) if widths[i] > depth and not drafts[i].nonfinite
            ]
            if not going:
                return drafts
            if len(going) < len(active):
                hidden = hidden.index_select(0, torch.tensor(going, device=self._device))
                active = [active[row] for row in going]
            x, queries, gates = self._next(seqs, active, hidden, drafts, depth)

    def _next(
        self,
        seqs: Seq[Sequence],
        active: list[int],
        hidden: Tensor,
        drafts: list[Drafts],
        depth: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ids = [drafts[i].tokens[-1] for i in active]
        positions = [seqs[i].computed - 1 + depth for i in active]
        rows = [
            pool_rows(seqs[i].pages, p, p + 1, self._page_size)[0]
            for i, p in zip(active, positions, strict=True)
        ]
        index = torch.tensor((ids, positions, rows)).to(self._device)
        return self._head.prime(index[0], hidden, index[1], index[2], self._kv)

    def _prime(self, owed: Seq[tuple[Sequence, Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Write rows ``first``, ``first + 1``, … of each sequence from target hidden rows."""
        ids: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        for seq, hidden, first in owed:
            stop = first + len(hidden)
            ids += seq.tokens(first + 1, stop + 1)
            positions += range(first, stop)
            rows += pool_rows(seq.pages, first, stop, self._page_size)
        index = torch.tensor((ids, positions, rows)).to(self._device)
        hidden = owed[0][1] if len(owed) == 1 else torch.cat([rows for _, rows, _ in owed])
        return self._head.prime(index[0], hidden, index[1], index[2], self._kv)

    def _jobs(self, seq: Sequence, position: int, row: int) -> list[AttentionJob]:
        return attention_jobs(seq.pages, position, position + 1, row, self._page_size, self._device)

    def _choose(
        self, seqs: Seq[Sequence], active: list[int], scores: Scores, drafts: list[Drafts]
    ) -> None:
        finite, best = scores.best()
        drawing = any(seqs[i].params.temperature > 0 for i in active)
        logits = scores.whole() if drawing else scores.local
        for row, i in enumerate(active):
            seq, mine = seqs[i], drafts[i]
            if not finite[row]:
                mine.nonfinite += 1
                continue
            token = best[row]
            if seq.params.temperature > 0:
                proposal = distribution(logits[row], seq.params)
                position = seq.total_tokens + len(mine.tokens)
                token = draw(proposal, uniform(seq.seed, position, Purpose.DRAFT))
                mine.proposals.append(proposal)
            mine.tokens.append(token)
