"""A runner that plays a script instead of a model: real pages, real counts, tokens by formula.

The next token is a function of the tokens before it alone, as the contract demands, so every
schedule must give the same output. Faults, widths and pauses are whatever a test writes down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path

from specdec.contract import CacheSize, Invariance, Mode, RunnerInfo, RunnerOptions
from specdec.errors import PoolExhausted, RequestRefused
from specdec.pages import Pages
from specdec.request import (
    Finish,
    Phase,
    SamplingParams,
    Sequence,
    StepResult,
    StepStats,
    TokenLogprob,
)

EOS = 2


def next_token(tokens: Seq[int], vocab: int) -> int:
    """The script's model: any function of the whole prefix will do."""
    value = 17
    for token in tokens[-6:]:
        value = (value * 131 + token * 7 + len(tokens)) % 1_000_003
    return 3 + value % (vocab - 3)


@dataclass
class ScriptedRunner:
    """`drafts` 0 is target-only; a step at position p gets p % (drafts + 1) drafts right."""

    vocab: int = 384
    context: int = 512
    pool_tokens: int = 1024
    slots: int = 4
    page_size: int = 16
    chunk: int = 64
    drafts: int = 0
    pause_s: float = 0.0
    fault: Callable[[Sequence], Finish | None] = lambda seq: None
    before_step: Callable[[], None] = lambda: None
    model: Callable[[Seq[int], int], int] = next_token
    free: set[int] = field(default_factory=set)
    decode_batches: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool = Pages(self.pool_tokens, self.page_size)
        self.free = set(range(self.slots))

    @classmethod
    def load(cls, model_dir: Path, options: RunnerOptions) -> ScriptedRunner:
        return cls()

    @property
    def rank_parity(self) -> None:
        return None

    def close(self) -> None:
        pass

    @property
    def info(self) -> RunnerInfo:
        mode: Mode = "mtp" if self.drafts else "target-only"
        return RunnerInfo(
            model_path=Path("script"),
            architecture="Script",
            mode=mode,
            device="cpu",
            dtype="float32",
            vocab_size=self.vocab,
            context_length=self.context,
            eos_token_ids=frozenset({EOS}),
            parameters=1,
            weight_bytes=4,
            kv_bytes_per_token=8,
            state_bytes_per_slot=16,
            conv_bytes_per_slot=8,
            max_total_tokens=self.pool.total_tokens,
            max_running_requests=self.slots,
            page_size=self.page_size,
            draft_steps=self.drafts,
            adaptive=False,
            prefill_chunk_tokens=self.chunk,
            invariance=Invariance(True, True, 1, 64, "Nothing is computed."),
        )

    @property
    def free_slots(self) -> int:
        return len(self.free)

    @property
    def cache_size(self) -> CacheSize:
        return CacheSize()

    def flush_cache(self) -> None:
        pass

    def check_integrity(self) -> None:
        self.pool.check_integrity()

    def new_sequence(
        self,
        request_id: str,
        prompt_ids: Seq[int],
        params: SamplingParams,
        cache_key: Hashable = None,
    ) -> Sequence:
        if any(not 0 <= token < self.vocab for token in prompt_ids):
            raise RequestRefused("A token id is unknown.", "Use ids of the vocabulary.")
        if len(prompt_ids) + params.max_new_tokens > min(self.context, self.pool.total_tokens):
            raise RequestRefused("Requested token count exceeds the limit.", "Ask for less.")
        return Sequence(request_id, tuple(prompt_ids), params, seed=params.seed or 0)

    def can_admit(self, seq: Sequence) -> bool:
        needed = self.pool.missing(0, seq.total_tokens + 1)
        return bool(self.free) and needed <= self.pool.free_pages()

    def admit(self, seq: Sequence) -> None:
        needed = self.pool.missing(0, seq.total_tokens + 1)
        self.pool.grow(seq.request_id, seq.pages, needed, seq.total_tokens)
        seq.slot, seq.phase, seq.computed = self.free.pop(), Phase.PREFILL, 0

    def next_prefill_tokens(self, seq: Sequence) -> int:
        target = self._prefill_target(seq)
        return min(target, (seq.computed // self.chunk + 1) * self.chunk) - seq.computed

    def prefill_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        self._pause()
        results = []
        for seq in seqs:
            count = self.next_prefill_tokens(seq)
            seq.computed += count
            tokens: tuple[int, ...] = ()
            finish = None
            if seq.computed == self._prefill_target(seq):
                seq.phase = Phase.DECODE
                if not seq.output_ids:
                    seq.counters.prefill_tokens = 1
                    tokens, finish, _ = self._commit(seq, 1)
            results.append(
                StepResult(seq, tokens, StepStats(), count, finish, self._logprobs(seq, tokens))
            )
        return results

    def pages_short(self, seqs: Seq[Sequence]) -> int:
        needed = sum(self.pool.missing(len(seq.pages), seq.total_tokens + 1) for seq in seqs)
        return max(0, needed - self.pool.free_pages())

    def decode_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        self._pause()
        if self.pages_short(seqs):
            raise PoolExhausted("No pages.", "Retract.")
        self.decode_batches.append(len(seqs))
        for seq in seqs:  # what each must have comes before what drafts may take
            grow = self.pool.missing(len(seq.pages), seq.total_tokens + 1)
            self.pool.grow(seq.request_id, seq.pages, grow, seq.total_tokens)
        return [self._decode(seq) for seq in seqs]

    def _decode(self, seq: Sequence) -> StepResult:
        width = min(self.drafts, seq.remaining - 1)
        correct = min(width, seq.total_tokens % (self.drafts + 1)) if width > 0 else 0
        grow = self.pool.missing(len(seq.pages), seq.total_tokens + 1 + correct)
        if grow > self.pool.free_pages():
            width = correct = grow = 0
        self.pool.grow(seq.request_id, seq.pages, grow, seq.total_tokens)
        fault = self.fault(seq)
        if fault is not None:
            self.release(seq, fault)
            return StepResult(seq, (), StepStats(), 0, fault)
        tokens, finish, wanted = self._commit(seq, correct + 1)
        counters = seq.counters
        correct -= wanted - len(tokens)
        if width > 0:
            stats = StepStats(verify_steps=1, proposed_drafts=width, correct_drafts=correct)
            counters.verify_steps += 1
            counters.proposed_drafts += width
            counters.correct_drafts += correct
            histogram = counters.correct_histogram
            histogram.extend([0] * (self.drafts + 1 - len(histogram)))
            histogram[correct] += 1
        else:
            stats = StepStats(plain_tokens=1)
            counters.plain_tokens += 1
        return StepResult(seq, tokens, stats, 0, finish, self._logprobs(seq, tokens))

    def _commit(self, seq: Sequence, count: int) -> tuple[tuple[int, ...], Finish | None, int]:
        new: list[int] = []
        finish = None
        ends = seq.params.stop_token_ids | (frozenset() if seq.params.ignore_eos else {EOS})
        for _ in range(count):
            token = self.model(seq.tokens(0, seq.total_tokens), self.vocab)
            seq.output_ids.append(token)
            new.append(token)
            if token in ends:
                finish = Finish("stop", matched=token)
            elif seq.remaining == 0:
                finish = Finish("length", length=len(seq.output_ids))
            if finish is not None:
                break
        seq.computed = seq.total_tokens - 1
        if finish is not None:
            self.release(seq, finish)
        return tuple(new), finish, count

    def _logprobs(self, seq: Sequence, tokens: Seq[int]) -> tuple[TokenLogprob, ...] | None:
        if seq.params.top_logprobs is None:
            return None
        return tuple(TokenLogprob(-0.5, ((token, -0.5),)) for token in tokens)

    def _prefill_target(self, seq: Sequence) -> int:
        return seq.total_tokens - (1 if seq.output_ids else 0)

    def retract(self, seq: Sequence) -> None:
        self._give_back(seq)
        seq.phase, seq.computed = Phase.WAITING, 0
        seq.counters.retractions += 1

    def release(self, seq: Sequence, finish: Finish) -> None:
        if seq.phase is Phase.FINISHED:
            return
        self._give_back(seq)
        seq.phase, seq.finish = Phase.FINISHED, finish

    def trim(self, seq: Sequence, tokens: int) -> None:
        del seq.output_ids[len(seq.output_ids) - tokens :]
        seq.counters.trimmed_tokens += tokens

    def _give_back(self, seq: Sequence) -> None:
        self.pool.give_back(seq.request_id)
        if seq.slot is not None:
            self.free.add(seq.slot)
            seq.slot = None

    def _pause(self) -> None:
        self.before_step()
        if self.pause_s:
            time.sleep(self.pause_s)
