"""The engine's core behind ``contract.DecodeRunner``: sequences in, committed tokens out."""

from __future__ import annotations

import time
from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from specdec.admission import check_request
from specdec.assemble import Assembled, assemble
from specdec.contract import CacheSize, RunnerInfo, RunnerOptions
from specdec.drafting import Drafts, MtpDrafter
from specdec.errors import PoolExhausted
from specdec.judge import Judged, judge_rows
from specdec.keeping import Keeper
from specdec.pages import Pages
from specdec.plan import Span, plan_pass
from specdec.prefix import PrefixCache
from specdec.request import Finish, Phase, SamplingParams, Sequence, StepResult, StepStats
from specdec.resume import Rules
from specdec.seats import Seats
from specdec.speculate import next_width, step_counts
from specdec.state import ModelState
from specdec.tally import add_step

NONFINITE_DRAFT = "The drafter produced logits that are not finite."
NONFINITE_TARGET = "The model produced logits that are not finite."


class Runner:
    """One model on one device with its state. See ``contract.py`` for what each call promises."""

    def __init__(self, parts: Assembled, options: RunnerOptions) -> None:
        self._parts = parts
        self._target = parts.target
        self._device = parts.device
        self._taps = parts.config.conv_kernel - 1
        self._random_seed = options.random_seed
        self._made = 0
        info = parts.info
        self._end_tokens = info.eos_token_ids
        self._pages = Pages(info.max_total_tokens, info.page_size)
        self._state = ModelState(
            parts.config,
            info.max_running_requests,
            self._pages.total_tokens,
            parts.head is not None,
            parts.device,
        )
        self._drafter: MtpDrafter | None = None
        if parts.head is not None:
            assert self._state.drafter is not None
            self._drafter = MtpDrafter(
                parts.head, self._state.drafter, info.page_size, parts.device
            )
        self._cache: PrefixCache | None = None
        self._keeper: Keeper | None = None
        if options.prefix_cache:
            rules = Rules(info.page_size, parts.head is not None, info.invariance.prefill_exact)
            most, most_bytes = options.max_snapshots, options.max_snapshot_bytes
            self._cache = PrefixCache(self._pages, self._state, rules, most, most_bytes)
            interval = options.snapshot_interval
            self._keeper = Keeper(self._cache, self._state, self._drafter, interval)
        self._seats = Seats(self._pages, info.max_running_requests, self._state, self._cache)

    @classmethod
    def load(cls, model_dir: Path, options: RunnerOptions | None = None) -> Runner:
        """Read a checkpoint strictly and prepare it. Raises CheckpointError, SpecdecError."""
        options = options or RunnerOptions()
        return cls(assemble(Path(model_dir), options), options)

    @property
    def info(self) -> RunnerInfo:
        return self._parts.info

    @property
    def pool(self) -> Pages:
        return self._pages

    @property
    def free_slots(self) -> int:
        return self._seats.free_slots

    @property
    def cache_size(self) -> CacheSize:
        """What the prefix cache holds; all zero without one."""
        return CacheSize() if self._cache is None else self._cache.size

    def flush_cache(self) -> None:
        """Forget every snapshot, and every page that no running sequence reads."""
        if self._cache is not None:
            self._cache.clear()

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page, slot and snapshot is owned once."""
        self._pages.check_integrity()
        if self._cache is not None:
            self._cache.check_integrity()

    def new_sequence(
        self,
        request_id: str,
        prompt_ids: Seq[int],
        params: SamplingParams,
        cache_key: Hashable = None,
    ) -> Sequence:
        """Check a request and wrap it; takes nothing. Raises RequestRefused."""
        check_request(prompt_ids, params, self.info)
        self._made += 1
        seed = self._random_seed + self._made if params.seed is None else params.seed
        width = 1 if self.info.adaptive else self.info.draft_steps
        return Sequence(
            request_id, tuple(prompt_ids), params, seed, draft_width=width, cache_key=cache_key
        )

    # Slots and pages

    def can_admit(self, seq: Sequence) -> bool:
        """A slot is free, and pages for all present tokens and one more."""
        return self._seats.fits(seq)

    def admit(self, seq: Sequence) -> None:
        """WAITING to PREFILL: takes a slot and those pages. Raises PoolExhausted."""
        resume = self._seats.take(seq)
        if self._keeper is not None:
            self._keeper.begin(seq, resume)

    def pages_short(self, seqs: Seq[Sequence]) -> int:
        """Pages missing for one decode step of all ``seqs``, 0 if it can run."""
        return self._seats.short(seqs)

    def retract(self, seq: Sequence) -> None:
        """Back to WAITING: gives back slot and pages, keeps output and counters, counts it."""
        assert seq.phase in (Phase.PREFILL, Phase.DECODE)
        self._give_back(seq, keep=True)
        seq.phase = Phase.WAITING
        seq.counters.retractions += 1

    def release(self, seq: Sequence, finish: Finish) -> None:
        """End a sequence in any phase and give back what it holds; a second call does nothing."""
        self._end(seq, finish, keep=True)

    def trim(self, seq: Sequence, tokens: int) -> None:
        """Discard the last ``tokens`` output ids of a finished sequence; counted in W."""
        assert seq.phase is Phase.FINISHED
        assert 0 <= tokens <= len(seq.output_ids)
        if tokens:
            del seq.output_ids[-tokens:]
            seq.counters.trimmed_tokens += tokens

    # Prefill

    def next_prefill_tokens(self, seq: Sequence) -> int:
        """Positions up to the next absolute multiple of the chunk size, or the last one."""
        chunk = self.info.prefill_chunk_tokens
        return min((seq.computed // chunk + 1) * chunk, seq.prefill_goal) - seq.computed

    @torch.inference_mode()
    def prefill_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        """One chunk for each sequence; the last one samples the first token."""
        return [self._prefill_chunk(seq) for seq in seqs]

    def _prefill_chunk(self, seq: Sequence) -> StepResult:
        assert seq.phase is Phase.PREFILL
        begin = time.perf_counter()
        first = seq.computed
        stop = first + self.next_prefill_tokens(seq)
        hidden = self._forward_chunk(seq, stop)
        last = self._target.scores(hidden[-1:]) if stop == seq.prefill_goal else None
        judged = None if last is None else judge_rows([seq], [Drafts()], last, self._end_tokens)[0]
        middle = time.perf_counter()
        if self._drafter is not None:
            self._drafter.remember(seq, hidden)
            self._drafter.prime(seq)
        if self._keeper is not None:
            self._keeper.after_chunk(seq, hidden)
        stats = StepStats(prefill_s=middle - begin, priming_s=time.perf_counter() - middle)
        done = self._conclude_prefill(seq, stats, judged, last is not None)
        reused = first if first == seq.resumed_at else 0
        return replace(done, prefilled_tokens=stop - first, reused_tokens=reused)

    def _conclude_prefill(
        self, seq: Sequence, stats: StepStats, judged: Judged | None, whole: bool
    ) -> StepResult:
        if not whole:
            return self._report(seq, stats)
        seq.phase = Phase.DECODE
        if judged is None:
            return self._report(seq, stats, failure=NONFINITE_TARGET)
        if seq.output_ids:  # after a retraction the tokens are known already
            return self._report(seq, stats)
        seq.counters.prefill_tokens = 1
        return self._report(seq, stats, judged)

    def _forward_chunk(self, seq: Sequence, stop: int) -> Tensor:
        """Hidden rows up to position ``stop``; in one pass where prefill rows are exact."""
        pieces: list[Tensor] = []
        while seq.computed < stop:
            begin, end = seq.computed, self._piece_end(seq.computed, stop)
            pieces.append(self._forward([self._span(seq, seq.tokens(begin, end))]))
            seq.computed = end
            if self._keeper is not None:
                self._keeper.after_piece(seq, begin, pieces[-1])
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _piece_end(self, position: int, stop: int) -> int:
        """Where a pass from ``position`` ends: an absolute edge, whatever was computed before."""
        rows = self.info.invariance.prefill_rows
        edge = None if self._keeper is None else self._keeper.edge(position)
        return min(stop, (position // rows + 1) * rows, stop if edge is None else edge)

    # Decode

    @torch.inference_mode()
    def decode_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        """One visible step: draft, verify, accept, commit; results in the order of ``seqs``."""
        if not seqs:
            return []
        assert all(seq.phase is Phase.DECODE for seq in seqs)
        if self.pages_short(seqs):
            raise PoolExhausted(
                "The KV pool has no page for the next row.", "Retract a sequence first."
            )
        begin = time.perf_counter()
        drafts = self._draft(seqs, self._widths(seqs))
        middle = time.perf_counter()
        running = [i for i, mine in enumerate(drafts) if not mine.nonfinite]
        found = self._verify([seqs[i] for i in running], [drafts[i] for i in running])
        judged = dict(zip(running, found, strict=True))
        seconds = StepStats(draft_s=middle - begin, verify_s=time.perf_counter() - middle)
        return [
            self._conclude(seq, drafts[i], judged.get(i), seconds) for i, seq in enumerate(seqs)
        ]

    def _widths(self, seqs: Seq[Sequence]) -> list[int]:
        """Drafts to propose for each sequence, and pages for all of the step's rows."""
        for seq in seqs:
            self._seats.grow(seq, seq.total_tokens)
        return [
            self._seats.grow_for_drafts(seq, min(seq.draft_width, seq.remaining - 1))
            if self._drafter
            else 0
            for seq in seqs
        ]

    def _draft(self, seqs: Seq[Sequence], widths: Seq[int]) -> list[Drafts]:
        drafts = [Drafts() for _ in seqs]
        drafting = [i for i, width in enumerate(widths) if width]
        if self._drafter is not None and drafting:
            found = self._drafter.draft([seqs[i] for i in drafting], [widths[i] for i in drafting])
            for i, mine in zip(drafting, found, strict=True):
                drafts[i] = mine
        return drafts

    def _verify(self, seqs: list[Sequence], drafts: list[Drafts]) -> list[Judged | None]:
        """One target forward over every sequence's anchor and drafts; None: not finite."""
        if not seqs:
            return []
        spans = [
            self._span(seq, [seq.token_at(seq.computed), *mine.tokens])
            for seq, mine in zip(seqs, drafts, strict=True)
        ]
        hidden = self._forward(spans)
        found = judge_rows(seqs, drafts, self._target.scores(hidden), self._end_tokens)
        first = 0
        for seq, mine, judged in zip(seqs, drafts, found, strict=True):
            if judged is not None:
                kept = hidden[first : first + len(judged.done.visible)]
                seq.computed += len(kept)
                if self._drafter is not None:
                    self._drafter.remember(seq, kept)
                if self._keeper is not None:
                    self._keeper.after_step(seq, kept)
            first += 1 + len(mine.tokens)
        return found

    def _conclude(
        self, seq: Sequence, mine: Drafts, judged: Judged | None, seconds: StepStats
    ) -> StepResult:
        if judged is None:
            stats = replace(seconds, nonfinite_draft_logits=mine.nonfinite)
            failure = NONFINITE_DRAFT if mine.nonfinite else NONFINITE_TARGET
            return self._report(seq, stats, failure=failure)
        proposed = len(mine.tokens)
        if self.info.adaptive:
            seq.draft_width = next_width(
                seq.draft_width, proposed, judged.done.correct, self.info.draft_steps
            )
        counts = step_counts(judged.done, proposed)
        stats = replace(counts, draft_s=seconds.draft_s, verify_s=seconds.verify_s)
        return self._report(seq, stats, judged)

    # Shared

    def _forward(self, spans: Seq[Span]) -> Tensor:
        plan = plan_pass(spans, self.info.page_size, self._taps, self._device)
        return self._target.hidden(plan, self._state)

    def _span(self, seq: Sequence, tokens: list[int]) -> Span:
        assert seq.slot is not None
        return Span(seq.slot, seq.pages, seq.computed, tokens)

    def _report(
        self,
        seq: Sequence,
        stats: StepStats,
        judged: Judged | None = None,
        failure: str | None = None,
    ) -> StepResult:
        """Append what was committed, count it, and end the sequence if it is at its end."""
        add_step(seq.counters, stats)
        tokens = () if judged is None else judged.done.visible
        logprobs = None if judged is None else judged.logprobs
        finish = None if judged is None else judged.finish
        if failure is not None:
            finish = Finish("abort", message=failure)
        seq.output_ids += tokens
        if finish is not None:
            self._end(seq, finish, keep=failure is None)
        return StepResult(seq, tokens, stats, finish=finish, logprobs=logprobs)

    def _end(self, seq: Sequence, finish: Finish, keep: bool) -> None:
        if seq.phase is Phase.FINISHED:
            return
        self._give_back(seq, keep)
        seq.phase = Phase.FINISHED
        seq.finish = finish

    def _give_back(self, seq: Sequence, keep: bool) -> None:
        """``keep``: what it computed may be reused."""
        if self._keeper is not None:
            self._keeper.end(seq, keep)
        self._seats.leave(seq)
        if self._drafter is not None:
            self._drafter.forget(seq)
