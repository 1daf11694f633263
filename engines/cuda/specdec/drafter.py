"""What every drafter is to the engine. ``DRAFTERS.md`` tells in which order it is called.

A drafter proposes; the target decides. So nothing here can change a greedy answer, and what a
drafter remembers comes from committed rows of the target alone: a proposal leaves nothing behind
that the next one could see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from specdec.draft_facts import DraftFacts
from specdec.request import Sequence
from specdec.rows import Rows

if TYPE_CHECKING:
    from specdec.config import ModelConfig
    from specdec.contract import RunnerInfo, RunnerOptions
    from specdec.layers.linear import Products
    from specdec.model import Shared
    from specdec.state import ModelState


@dataclass
class Drafts:
    """One sequence's proposals: token ids, the distribution each was drawn from (sampled requests
    only), how many rows of draft logits were not finite (drafting stops there), and for drafters
    that have one their confidence in each token, 0 to 1."""

    tokens: list[int] = field(default_factory=list)
    proposals: list[Tensor] = field(default_factory=list)
    nonfinite: int = 0
    confidences: list[float] = field(default_factory=list)


class Drafter(ABC):
    """A draft model with its memory, driven by the runner. Sequences are keys; slots are theirs.

    The calls for one sequence are, between an admission and the end of it: ``begin``; for each
    prefill chunk ``remember`` once or more, then ``prime``; for each decode step ``wanted``,
    ``propose`` (unless no draft is wanted), ``remember``, ``learn``; ``forget`` at the end, which
    a retraction is too. ``keep`` may come after any ``remember``, ``settle`` right before
    ``forget``.
    """

    @property
    @abstractmethod
    def facts(self) -> DraftFacts: ...

    def first_width(self) -> int:
        """Drafts of a sequence's first step."""
        return self.facts.most

    def begin(self, seq: Sequence, kept: Tensor | None, stop: int, rewrite: bool) -> None:  # noqa: B027
        """Admitted: positions before ``seq.computed`` will not be computed again.

        Pool rows of those positions are in place. ``kept`` is what ``keep`` gave for ``stop``
        (at or behind ``seq.computed``), None on a cold start. ``rewrite``: a drafter that follows
        has to write its row ``seq.computed - 1`` again, as another token comes after it now.
        """

    @abstractmethod
    def remember(self, seq: Sequence, rows: Rows) -> None:
        """Take the rows of the positions just committed, which end before ``seq.computed``."""

    def prime(self, seq: Sequence) -> None:  # noqa: B027
        """A prefill chunk is done: write what can be written, while the time counts as priming."""

    def wanted(self, seq: Sequence) -> int:
        """Drafts to propose now; 0 for an ordinary step. One token a step is the target's."""
        return min(seq.draft_width, seq.remaining - 1)

    @abstractmethod
    def propose(self, seqs: Seq[Sequence], widths: Seq[int]) -> list[Drafts]:
        """Up to ``widths[i]`` >= 1 tokens after each sequence's last one, which stands at
        ``seq.computed``; fewer than wanted where the pool is tight. Pool rows from
        ``seq.computed`` on may be written, those before may not."""

    def learn(self, seq: Sequence, proposed: int, correct: int) -> None:  # noqa: B027
        """The target judged; may set ``seq.draft_width`` for the next step. Nothing has to be
        rolled back: of what was proposed nobody remembers anything."""

    def keep(self, seq: Sequence, stop: int) -> Tensor | None:
        """What ``begin`` will need of the positions before ``stop``, at most a block behind
        ``seq.computed``: its last row belongs to position ``stop - 1``. None: nothing."""
        return None

    def settle(self, seq: Sequence) -> None:  # noqa: B027
        """The sequence ends and its pages will be reused: write rows that are still owed."""

    @abstractmethod
    def forget(self, seq: Sequence) -> None:
        """The sequence gave its seat back: drop what is kept under its name."""

    def reset(self) -> None:  # noqa: B027
        """The cache was flushed: clear memory that no running sequence uses."""

    def check_integrity(self) -> None:  # noqa: B027
        """Raise AssertionError unless memory is held by running sequences alone."""


@dataclass(frozen=True)
class TargetSide:
    """What a draft model finds at its target: shapes, embedding, head and rotary table, how
    products run, where, and the launch's options. ``positions``: the most that a context can
    have."""

    config: ModelConfig
    shared: Shared
    products: Products
    device: torch.device
    options: RunnerOptions
    positions: int

    @property
    def replicated(self) -> TargetSide:
        """The same for a draft model that each rank holds and computes whole.

        Embedding and head stay spread over the ranks, and are asked together. Ranks that get the
        same rows propose the same drafts, so nothing else has to travel.
        """
        return replace(self, products=replace(self.products, ranks=None))


class DraftModel(Protocol):
    """A draft model as loaded, before it has a memory."""

    @property
    def facts(self) -> DraftFacts: ...

    def drafter(self, state: ModelState, info: RunnerInfo) -> Drafter:
        """Give it its memory. ``state.drafter`` has one layer for each of ``facts.pool_kv``."""
        ...
