"""The nouns a scheduler works with: a request's sampling, its sequence, and what a step returns.

Counter names follow one convention everywhere (per request, plain integers):

====  =====================================================================
V     verify steps: target forwards that judged at least one draft
P     proposed drafts
C     correct drafts (accepted, no bonus token, none past a stop token)
T     tokens from plain steps, one each (target-only, or no draft was possible)
W     tokens committed and then discarded (past a stop token or stop string)
N0    tokens sampled by prefill: 1, once per request however often it is retracted
N     visible output tokens
====  =====================================================================

and always ``N == N0 + C + V + T - W``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

ResumeSource = Literal["empty", "live", "snapshot"]


@dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled. ``temperature == 0`` is greedy and ignores the other three.

    ``top_k`` 0 means no limit. ``seed`` None means the engine picks one and keeps it for the
    request's life, so that a retraction repeats the same draws. ``stop_token_ids`` end the output
    even with ``ignore_eos``, which only silences the checkpoint's own end tokens. A stop token is
    part of the output ids, as in SGLang; leaving it out of the text is the server's business.
    ``top_logprobs`` None asks for no log-probabilities; k >= 0 asks for each output token's own and
    those of the k most probable ids at its position, from the target's logits before temperature.
    """

    max_new_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    seed: int | None = None
    top_logprobs: int | None = None


class Phase(Enum):
    """Where a sequence stands. Only the runner changes it."""

    WAITING = "waiting"  # holds no slot and no page; new, or retracted
    PREFILL = "prefill"  # holds a slot; some positions before the last token are not computed
    DECODE = "decode"  # every position but the last token's is computed
    FINISHED = "finished"  # holds nothing; ``finish`` says why


@dataclass(frozen=True)
class Finish:
    """Why a sequence ended; ``kind`` and its fields are those of SGLang's ``finish_reason``."""

    kind: Literal["stop", "length", "abort"]
    matched: int | str | None = None
    length: int | None = None
    message: str | None = None


@dataclass
class Counters:
    """A request's counts and seconds since it was admitted first.

    Seconds are those of the steps the request took part in: in a batch every member lives
    through the whole step, so they do not add up over requests.
    """

    verify_steps: int = 0  # V
    proposed_drafts: int = 0  # P
    correct_drafts: int = 0  # C
    plain_tokens: int = 0  # T
    trimmed_tokens: int = 0  # W
    prefill_tokens: int = 0  # N0
    correct_histogram: list[int] = field(default_factory=list)  # index: correct drafts in a step
    rollbacks: int = 0  # verify steps that rejected at least one draft
    replayed_tokens: int = 0  # tokens fed again after a rollback
    nonfinite_draft_logits: int = 0
    retractions: int = 0
    prefill_s: float = 0.0
    priming_s: float = 0.0  # the drafter's share of prefill
    draft_s: float = 0.0
    verify_s: float = 0.0
    replay_s: float = 0.0
    confidence_count: int = 0  # drafts that came with the drafter's confidence
    confidence_mean: float | None = None
    confidence_min: float | None = None
    confidence_max: float | None = None

    def output_tokens(self) -> int:
        """N as the other counts give it; equal to ``len(sequence.output_ids)`` at all times."""
        return (
            self.prefill_tokens
            + self.correct_drafts
            + self.verify_steps
            + self.plain_tokens
            - self.trimmed_tokens
        )


@dataclass(frozen=True)
class StepStats:
    """What one step added for one sequence (same letters as above), and the step's seconds."""

    verify_steps: int = 0
    proposed_drafts: int = 0
    correct_drafts: int = 0
    plain_tokens: int = 0
    trimmed_tokens: int = 0
    rollbacks: int = 0
    replayed_tokens: int = 0
    nonfinite_draft_logits: int = 0
    prefill_s: float = 0.0
    priming_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    replay_s: float = 0.0
    confidences: tuple[float, ...] = ()  # the drafter's, of each proposed token


@dataclass(eq=False)
class Sequence:
    """One request inside the engine. Made by ``Runner.new_sequence``; fields are read-only outside.

    ``computed`` positions (of prompt plus output) have their state in the runner. ``cached_tokens``
    of the prompt came from the prefix cache at the first admission, which knew ``matched_tokens``
    of it; ``resume_source`` says from what (an earlier request's end, or a snapshot on its way).
    ``resumed_at``: where the present admission began, a retracted sequence's included. Only
    sequences with equal ``cache_key`` share anything. ``rank_token_parity``: whether all ranks
    committed the same tokens so far; None where there is one rank.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    output_ids: list[int] = field(default_factory=list)
    phase: Phase = Phase.WAITING
    finish: Finish | None = None
    computed: int = 0
    cached_tokens: int = 0
    slot: int | None = None
    pages: list[int] = field(default_factory=list)
    draft_width: int = 1  # the adaptive policy's present number of drafts
    accept_average: float | None = None  # of correct drafts, where the policy weighs them
    counters: Counters = field(default_factory=Counters)
    cache_key: Hashable = None
    matched_tokens: int = 0
    resume_source: ResumeSource = "empty"
    resumed_at: int = 0
    rank_token_parity: bool | None = None

    @property
    def prefill_goal(self) -> int:
        """Positions that prefill computes: the prompt, or after a retraction all but the last."""
        return self.total_tokens - 1 if self.output_ids else len(self.prompt_ids)

    def all_tokens(self) -> tuple[int, ...]:
        """Prompt and output."""
        return self.prompt_ids + tuple(self.output_ids)

    @property
    def total_tokens(self) -> int:
        """Prompt and output together."""
        return len(self.prompt_ids) + len(self.output_ids)

    @property
    def remaining(self) -> int:
        """Output tokens that may still be committed."""
        return self.params.max_new_tokens - len(self.output_ids)

    def token_at(self, position: int) -> int:
        """The token id at an absolute position of prompt plus output."""
        split = len(self.prompt_ids)
        return self.prompt_ids[position] if position < split else self.output_ids[position - split]

    def tokens(self, start: int, stop: int) -> list[int]:
        """Token ids at absolute positions ``start`` to ``stop - 1``."""
        return [self.token_at(i) for i in range(start, stop)]


@dataclass(frozen=True)
class TokenLogprob:
    """An output token's log-probability (natural log) under the target, as the row that chose the
    token gave it, and the most probable ids at that position, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class StepResult:
    """What one step did for one sequence.

    ``tokens`` are the newly visible output ids, in order (empty while a prefill is unfinished, and
    for a re-prefill after a retraction). ``finish`` is set in the step that ends the sequence; the
    runner has then released its slot and pages already. ``logprobs`` has one entry for each of
    ``tokens`` when the request asked for them, None otherwise. ``reused_tokens``: positions that
    the prefix cache gave, told by the first prefill step after an admission.
    """

    sequence: Sequence
    tokens: tuple[int, ...]
    stats: StepStats
    prefilled_tokens: int = 0  # positions computed by a prefill step
    finish: Finish | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    reused_tokens: int = 0
