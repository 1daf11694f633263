"""The parts that a prefill chunk and a decode step work with, one set for each runner."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from specdec.assemble import Assembled
from specdec.contract import RunnerInfo, RunnerOptions
from specdec.drafter import Drafter
from specdec.keeping import Keeper
from specdec.model import Target
from specdec.pages import Pages
from specdec.plan import Span, plan_pass
from specdec.prefix import PrefixCache
from specdec.request import Sequence
from specdec.resume import Rules
from specdec.rows import Rows
from specdec.seats import Seats
from specdec.state import ModelState


@dataclass
class Core:
    """The target with its state, who sits where, and beside them a drafter and a prefix cache."""

    info: RunnerInfo
    target: Target
    state: ModelState
    pages: Pages
    seats: Seats
    drafter: Drafter | None
    cache: PrefixCache | None
    keeper: Keeper | None
    conv_taps: int
    device: torch.device

    def forward(self, spans: Seq[Span]) -> Rows:
        """One pass of the target, with the taps that the drafter wants."""
        plan = plan_pass(spans, self.info.page_size, self.conv_taps, self.device)
        taps = () if self.drafter is None else self.drafter.facts.taps
        return self.target.rows(plan, self.state, taps)

    def span(self, seq: Sequence, tokens: list[int]) -> Span:
        """The sequence's next rows."""
        assert seq.slot is not None
        return Span(seq.slot, seq.pages, seq.computed, tokens)


def build_core(parts: Assembled, options: RunnerOptions) -> Core:
    """Give an assembled model its memory."""
    info, draft = parts.info, parts.draft
    pages = Pages(info.max_total_tokens, info.page_size)
    pool_kv = () if draft is None else draft.facts.pool_kv
    slots = info.max_running_requests
    rows, kind = pages.total_tokens, info.kv_cache_dtype
    state = ModelState(parts.config, slots, rows, pool_kv, parts.device, kind)
    cache = keeper = None
    if options.prefix_cache:
        follows = draft is not None and draft.facts.follows
        rules = Rules(info.page_size, follows, info.invariance.prefill_exact)
        most, most_bytes = options.max_snapshots, options.max_snapshot_bytes
        cache = PrefixCache(pages, state, rules, most, most_bytes)
        keeper = Keeper(cache, state, options.snapshot_interval)
    return Core(
        info=info,
        target=parts.target,
        state=state,
        pages=pages,
        seats=Seats(pages, slots, state, cache),
        drafter=None if draft is None else draft.drafter(state, info),
        cache=cache,
        keeper=keeper,
        conv_taps=parts.config.conv_kernel - 1,
        device=parts.device,
    )
