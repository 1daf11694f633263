"""The engine's core behind ``contract.DecodeRunner``: sequences in, committed tokens out."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path

import torch

from specdec.admission import check_request
from specdec.assemble import Assembled, assemble
from specdec.contract import CacheSize, RunnerInfo, RunnerOptions
from specdec.core import build_core
from specdec.decoding import decode_batch
from specdec.errors import PoolExhausted
from specdec.judge import Judged
from specdec.pages import Pages
from specdec.parallel.ranks import Ranks
from specdec.prefilling import next_tokens, prefill_chunk
from specdec.request import Finish, Phase, SamplingParams, Sequence, StepResult, StepStats
from specdec.tally import add_step

NONFINITE_DRAFT = "The drafter produced logits that are not finite."
NONFINITE_TARGET = "The model produced logits that are not finite."


class Runner:
    """One model on one device with its state. See ``contract.py`` for what each call promises."""

    def __init__(self, parts: Assembled, options: RunnerOptions) -> None:
        self._info = parts.info
        self._random_seed = options.random_seed
        self._made = 0
        self._core = build_core(parts, options)

    @classmethod
    def load(
        cls, model_dir: Path, options: RunnerOptions | None = None, ranks: Ranks | None = None
    ) -> Runner:
        """Read a checkpoint strictly and prepare it. Raises CheckpointError, SpecdecError.

        With ``ranks`` it runs one rank's share, and all ranks make the same calls in one order.
        """
        options = options or RunnerOptions()
        return cls(assemble(Path(model_dir), options, ranks), options)

    @property
    def info(self) -> RunnerInfo:
        return self._info

    @property
    def pool(self) -> Pages:
        return self._core.pages

    @property
    def free_slots(self) -> int:
        return self._core.seats.free_slots

    @property
    def cache_size(self) -> CacheSize:
        """What the prefix cache holds; all zero without one."""
        return CacheSize() if self._core.cache is None else self._core.cache.size

    @property
    def rank_parity(self) -> None:
        """One rank has nobody to compare with; ``parallel.leader`` has."""
        return None

    def close(self) -> None:
        """Nothing but this process holds anything."""

    def flush_cache(self) -> None:
        """Forget every snapshot, and every page that no running sequence reads."""
        if self._core.cache is not None:
            self._core.cache.clear()
        if self._core.drafter is not None:
            self._core.drafter.reset()

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page, slot and snapshot is owned once."""
        self._core.pages.check_integrity()
        if self._core.cache is not None:
            self._core.cache.check_integrity()
        if self._core.drafter is not None:
            self._core.drafter.check_integrity()

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
        drafter = self._core.drafter
        width = 0 if drafter is None else drafter.first_width()
        return Sequence(
            request_id, tuple(prompt_ids), params, seed, draft_width=width, cache_key=cache_key
        )

    # Slots and pages

    def can_admit(self, seq: Sequence) -> bool:
        """A slot is free, and pages for all present tokens and one more."""
        return self._core.seats.fits(seq)

    @torch.inference_mode()
    def admit(self, seq: Sequence) -> None:
        """WAITING to PREFILL: takes a slot and those pages. Raises PoolExhausted."""
        resume = self._core.seats.take(seq)
        if self._core.drafter is not None:
            kept, stop = (s.kept, s.stop) if (s := resume.snapshot) else (None, 0)
            self._core.drafter.begin(seq, kept, stop, resume.rewrite)

    def pages_short(self, seqs: Seq[Sequence]) -> int:
        """Pages missing for one decode step of all ``seqs``, 0 if it can run."""
        return self._core.seats.short(seqs)

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

    # Steps

    def next_prefill_tokens(self, seq: Sequence) -> int:
        """Positions up to the next absolute multiple of the chunk size, or the last one."""
        return next_tokens(self._core, seq)

    @torch.inference_mode()
    def prefill_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        """One chunk for each sequence; the last one samples the first token."""
        return [self._prefill(seq) for seq in seqs]

    def _prefill(self, seq: Sequence) -> StepResult:
        chunk = prefill_chunk(self._core, seq)
        judged, failure = chunk.judged, None
        if chunk.whole:
            seq.phase = Phase.DECODE
            if judged is None:
                failure = NONFINITE_TARGET
            elif seq.output_ids:  # after a retraction the tokens are known already
                judged = None
            else:
                seq.counters.prefill_tokens = 1
        done = self._report(seq, chunk.stats, judged, failure)
        return replace(done, prefilled_tokens=chunk.tokens, reused_tokens=chunk.reused)

    @torch.inference_mode()
    def decode_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        """One visible step: draft, verify, accept, commit; results in the order of ``seqs``."""
        if not seqs:
            return []
        if self.pages_short(seqs):
            raise PoolExhausted(
                "The KV pool has no page for the next row.", "Retract a sequence first."
            )
        results: list[StepResult] = []
        for seq, found in zip(seqs, decode_batch(self._core, seqs), strict=True):
            failure = None
            if found.judged is None:
                broken = found.stats.nonfinite_draft_logits
                failure = NONFINITE_DRAFT if broken else NONFINITE_TARGET
            results.append(self._report(seq, found.stats, found.judged, failure))
        return results

    def _report(
        self,
        seq: Sequence,
        stats: StepStats,
        judged: Judged | None,
        failure: str | None,
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
        core = self._core
        if core.keeper is not None:
            core.keeper.end(seq, keep, core.drafter)
        core.seats.leave(seq)
        if core.drafter is not None:
            core.drafter.forget(seq)
