"""`POST /v1/completions`: text or token ids in, text out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specdec.http.body import read_json
from specdec.http.fields import isolation
from specdec.http.openai import Envelope, ending, sampling_of
from specdec.http.openai_schema import CompletionBody
from specdec.http.sse import EventStream, event, unless_gone
from specdec.http.state import ServerState, state_of
from specdec.http.submit import Answer, check, collecting, encode, job_spec, new_rid, submit
from specdec.job import Delta
from specdec.request import TokenLogprob
from specdec.stream import Stream

DEFAULT_MAX_TOKENS = 16


async def completions(request: Request) -> Response | EventStream:
    """Answer as one object, or as a stream with one event for each scheduler step."""
    state = state_of(request)
    body = await read_json(request, CompletionBody, state.settings.max_body_bytes)
    prompts = await _prompts(state, body)
    name = body.rid or new_rid()
    rids = [name] if len(prompts) == 1 else [f"{name}_{i}" for i in range(len(prompts))]
    sampling = sampling_of(body, body.max_tokens or DEFAULT_MAX_TOKENS, body.logprobs)
    key = isolation(body.cache_salt, body.extra_key)
    specs = [
        job_spec(state, rid, ids, sampling, cache_key=key)
        for rid, ids in zip(rids, prompts, strict=True)
    ]
    stream = await submit(state, specs)
    envelope = Envelope(state, body, name, "text_completion")
    if body.stream:
        return EventStream(_events(state, stream, body, prompts, envelope), stream.close)
    try:
        answers = await unless_gone(request.receive, collecting(stream))
    finally:
        stream.close()
    choices = [
        _choice(state, body, index, answer, prompts[index], answer.end)
        for index, answer in enumerate(answers)
    ]
    deltas = [answer.end for answer in answers]
    return JSONResponse(
        envelope.wrap(choices, usage=envelope.usage(deltas), **envelope.extension(deltas[-1]))
    )


async def _events(
    state: ServerState,
    stream: Stream,
    body: CompletionBody,
    prompts: list[list[int]],
    envelope: Envelope,
) -> AsyncIterator[bytes]:
    latest: dict[int, Delta] = {}
    async for index, delta in stream:
        check(delta)
        piece = Answer()
        piece.add(delta)
        prompt_ids = None if index in latest else prompts[index]
        latest[index] = delta
        choice = _choice(state, body, index, piece, prompt_ids, delta)
        usage = envelope.usage(list(latest.values())) if envelope.usage_each else None
        yield event(envelope.wrap([choice], usage=usage))
    for closing in envelope.closing(list(latest.values()), keep_nulls=False):
        yield closing


def _choice(
    state: ServerState,
    body: CompletionBody,
    index: int,
    answer: Answer,
    prompt_ids: list[int] | None,
    delta: Delta,
) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": index,
        "text": answer.text,
        "logprobs": None
        if answer.logprobs is None
        else _logprobs(state, answer.token_ids, answer.logprobs),
        **ending(delta.finish),
    }
    if body.return_token_ids:
        choice["token_ids"] = answer.token_ids
        if prompt_ids is not None:
            choice["prompt_token_ids"] = prompt_ids
    return choice


def _logprobs(
    state: ServerState, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob]
) -> dict[str, Any]:
    def show(token: int) -> str:
        return state.tokenizer.decode([token], skip_special_tokens=False)

    return {
        "tokens": [show(token) for token in token_ids],
        "token_logprobs": [entry.logprob for entry in logprobs],
        "top_logprobs": [
            {show(token): logprob for token, logprob in entry.top} for entry in logprobs
        ],
        "text_offset": None,
    }


async def _prompts(state: ServerState, body: CompletionBody) -> list[list[int]]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [await encode(state, prompt)]
    if isinstance(prompt[0], int):
        return [prompt]
    if isinstance(prompt[0], str):
        return [await encode(state, text) for text in prompt]
    return prompt
