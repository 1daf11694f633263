"""One request as the scheduler carries it, and what each step reports about it."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass

from specdec.detokenize import Detokenizer
from specdec.request import (
    Counters,
    Finish,
    ResumeSource,
    SamplingParams,
    Sequence,
    TokenLogprob,
)


@dataclass(frozen=True)
class JobSpec:
    """What a client asked for. `received_s` is on the monotonic clock.

    `stop` strings end the output where one is complete first; `keep_stop` leaves the stop string
    (or stop token) in the text. `measured` false leaves the request out of the histograms. Only
    requests with equal `cache_key` share a prefix.
    """

    rid: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    stop: tuple[str, ...] = ()
    skip_special_tokens: bool = True
    keep_stop: bool = False
    received_s: float = 0.0
    measured: bool = True
    cache_key: Hashable = None


@dataclass(frozen=True)
class Timing:
    """When a request passed its stations: seconds on the monotonic clock, None if not reached."""

    received_s: float
    admitted_s: float | None
    first_token_s: float | None
    finished_s: float


@dataclass(frozen=True)
class Delta:
    """What one scheduler step gave one request: the new text and tokens, and its standing.

    `completion_tokens` is the total so far. `finish`, `counters` and `timing` come with the last
    delta alone. `failed` says that the engine, and not the client, gave the request up.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    retractions: int
    matched_tokens: int = 0
    resume_source: ResumeSource = "empty"
    rank_token_parity: bool | None = None
    finish: Finish | None = None
    failed: bool = False
    counters: Counters | None = None
    timing: Timing | None = None


@dataclass(frozen=True)
class Reading:
    """A step's tokens as text: `kept` of them are visible, `finish` includes stop strings."""

    text: str
    kept: int
    finish: Finish | None


@dataclass(eq=False)
class Job:
    """A request inside the scheduler. `order` is its place in the order of arrival."""

    spec: JobSpec
    sequence: Sequence
    detokenizer: Detokenizer
    order: int
    admitted_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None

    def read(self, tokens: tuple[int, ...], finish: Finish | None) -> Reading:
        """Turn new tokens into text, up to a stop string where one is complete."""
        text = ""
        for kept, token in enumerate(tokens, start=1):
            stopped_by_token = finish is not None and finish.kind == "stop" and kept == len(tokens)
            if not stopped_by_token or self.spec.keep_stop:
                text += self.detokenizer.push(token)
            if self.detokenizer.matched is not None:
                return Reading(text, kept, Finish("stop", matched=self.detokenizer.matched))
        if finish is not None:
            text += self.detokenizer.finish()
        return Reading(text, len(tokens), finish)

    def delta(
        self,
        now_s: float,
        *,
        text: str,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] | None = None,
        finish: Finish | None = None,
        failed: bool = False,
    ) -> Delta:
        """The report of one step. Call it when the runner's counts are settled."""
        sequence = self.sequence
        last = finish is not None
        return Delta(
            text=text,
            token_ids=token_ids,
            logprobs=logprobs,
            prompt_tokens=len(sequence.prompt_ids),
            completion_tokens=len(sequence.output_ids),
            cached_tokens=sequence.cached_tokens,
            retractions=sequence.counters.retractions,
            matched_tokens=sequence.matched_tokens,
            resume_source=sequence.resume_source,
            rank_token_parity=sequence.rank_token_parity,
            finish=finish,
            failed=failed,
            counters=copy.deepcopy(sequence.counters) if last else None,
            timing=Timing(self.spec.received_s, self.admitted_s, self.first_token_s, now_s)
            if last
            else None,
        )
