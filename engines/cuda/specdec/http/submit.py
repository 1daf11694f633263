"""From a checked body to requests in the engine: prompts as ids, sampling as the core wants it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from specdec.commands import EngineStopped
from specdec.errors import QueueFull, RequestRefused
from specdec.http.errors import ApiError
from specdec.http.state import ServerState
from specdec.job import Delta, JobSpec
from specdec.request import SamplingParams, TokenLogprob
from specdec.stream import Stream
from specdec.tokenizer import TokenizerError

# Below this temperature a request is greedy, as in SGLang.
GREEDY_BELOW = 1e-6
# Longer texts are tokenised off the event loop.
_LARGE_TEXT_CHARACTERS = 8_192


def new_rid() -> str:
    """A name for a request that brought none."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Sampling:
    """The sampling fields that all routes have, under this project's names; None: the default."""

    max_new_tokens: int | None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    no_stop_trim: bool | None = None
    seed: int | None = None
    top_logprobs: int | None = None

    def params(self, default_max_new_tokens: int) -> SamplingParams:
        """As the core takes it."""
        temperature = 1.0 if self.temperature is None else self.temperature
        return SamplingParams(
            max_new_tokens=self.max_new_tokens or default_max_new_tokens,
            temperature=0.0 if temperature < GREEDY_BELOW else temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(self.top_k or 0, 0),
            min_p=self.min_p or 0.0,
            stop_token_ids=frozenset(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
            seed=self.seed,
            top_logprobs=self.top_logprobs,
        )


def job_spec(
    state: ServerState,
    rid: str,
    prompt_ids: Sequence[int],
    sampling: Sampling,
    measured: bool = True,
    cache_key: Hashable = None,
) -> JobSpec:
    """One request for the engine. Without a token limit it may fill what the context leaves."""
    room = max(1, state.request_limit_tokens - len(prompt_ids))
    return JobSpec(
        rid=rid,
        prompt_ids=tuple(prompt_ids),
        params=sampling.params(room),
        stop=sampling.stop,
        skip_special_tokens=sampling.skip_special_tokens is not False,
        keep_stop=bool(sampling.no_stop_trim),
        received_s=time.monotonic(),
        measured=measured,
        cache_key=cache_key,
    )


async def encode(state: ServerState, text: str, add_special_tokens: bool = True) -> list[int]:
    """Token ids of a text. Raises ApiError 400 for text that is no Unicode or gives no token."""
    try:
        if len(text) > _LARGE_TEXT_CHARACTERS:
            ids = await asyncio.to_thread(state.tokenizer.encode, text, add_special_tokens)
        else:
            ids = state.tokenizer.encode(text, add_special_tokens)
    except TokenizerError as error:
        raise ApiError(400, str(error)) from error
    if not ids:
        raise ApiError(400, "The prompt is empty. Send at least one token.")
    return ids


async def submit(state: ServerState, specs: list[JobSpec]) -> Stream:
    """Hand requests to the engine. Raises ApiError: 400 refused, 503 not now."""
    if state.draining:
        raise ApiError(503, "The server is shutting down.")
    try:
        return await state.engine.submit(specs)
    except QueueFull as error:
        raise ApiError(503, str(error)) from error
    except RequestRefused as error:
        raise ApiError(400, str(error)) from error
    except EngineStopped as error:
        raise ApiError(503, str(error)) from error


def check(delta: Delta) -> None:
    """Raise ApiError 500 where the engine itself gave a request up."""
    if delta.failed:
        message = delta.finish.message if delta.finish else None
        raise ApiError(500, message or "The engine gave this request up.")


@dataclass
class Answer:
    """One request's output so far, joined from its deltas."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    last: Delta | None = None

    def add(self, delta: Delta) -> None:
        """Take the next delta."""
        self.text += delta.text
        self.token_ids.extend(delta.token_ids)
        if delta.logprobs is not None:
            self.logprobs = [*(self.logprobs or ()), *delta.logprobs]
        self.last = delta

    @property
    def end(self) -> Delta:
        """The last delta of a finished request."""
        assert self.last is not None
        return self.last


async def collect(stream: Stream) -> list[Answer]:
    """Wait for every request of a submission. Raises ApiError 500 if the engine gave one up."""
    answers = [Answer() for _ in stream.rids]
    async for index, delta in stream:
        check(delta)
        answers[index].add(delta)
    return answers


def collecting(stream: Stream) -> asyncio.Task[list[Answer]]:
    """`collect` as a task, to race against the client's leaving."""
    return asyncio.create_task(collect(stream))
