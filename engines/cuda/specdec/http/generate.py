"""`POST|PUT /generate`: SGLang's native route, the one with every count."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specdec.http.body import read_json
from specdec.http.errors import ApiError
from specdec.http.fields import isolation, stop_strings
from specdec.http.meta import logprob_fields, meta_info
from specdec.http.native_schema import GenerateBody, NativeSampling
from specdec.http.sse import EventStream, event, unless_gone
from specdec.http.state import ServerState, state_of
from specdec.http.submit import (
    Answer,
    Sampling,
    check,
    collecting,
    encode,
    job_spec,
    new_rid,
    submit,
)
from specdec.stream import Stream


async def generate(request: Request) -> Response | EventStream:
    """Answer as one object (or a list for a list of prompts), or as a stream of events."""
    state = state_of(request)
    body = await read_json(request, GenerateBody, state.settings.max_body_bytes)
    prompts, is_list = await _prompts(state, body)
    rids = _rids(body.rid, len(prompts), is_list)
    samplings = _samplings(body, len(prompts), is_list)
    stream = await submit(
        state,
        [
            job_spec(
                state,
                rid,
                ids,
                sampling,
                body.log_metrics is not False,
                isolation(body.cache_salt, body.extra_key),
            )
            for rid, ids, sampling in zip(rids, prompts, samplings, strict=True)
        ],
    )
    shape = _Shape(state, body, prompts, is_list)
    if body.stream:
        return EventStream(_events(stream, shape), stream.close)
    try:
        answers = await unless_gone(request.receive, collecting(stream))
    finally:
        stream.close()
    results = [shape.result(rids[index], index, answer) for index, answer in enumerate(answers)]
    return JSONResponse(results if is_list else results[0])


class _Shape:
    """How results of one request are written."""

    def __init__(
        self, state: ServerState, body: GenerateBody, prompts: list[list[int]], is_list: bool
    ) -> None:
        self._tokenizer = state.tokenizer
        self._body = body
        self._prompts = prompts
        self._is_list = is_list
        self.incremental = state.settings.incremental_streaming_output

    def result(self, rid: str, index: int, answer: Answer, first: bool = True) -> dict[str, Any]:
        """One prompt's result, or one event of its stream (`first` is its first)."""
        meta = meta_info(rid, answer.end)
        if answer.logprobs is not None:
            top = self._body.top_logprobs_num or 0
            show = self._show if self._body.return_text_in_logprobs else _no_text
            meta.update(logprob_fields(answer.token_ids, answer.logprobs, top, show))
        result: dict[str, Any] = {
            "text": answer.text,
            "output_ids": answer.token_ids,
            "meta_info": meta,
        }
        if self._body.return_prompt_token_ids and (first or not self._body.stream):
            result["prompt_token_ids"] = self._prompts[index]
        if self._is_list and self._body.stream:
            result["index"] = index
        return result

    def _show(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special_tokens=False)


def _no_text(token: int) -> None:
    return None


async def _events(stream: Stream, shape: _Shape) -> AsyncIterator[bytes]:
    answers = [Answer() for _ in stream.rids]
    async for index, delta in stream:
        check(delta)
        first = answers[index].last is None
        if shape.incremental:
            answers[index] = Answer()
        answers[index].add(delta)
        yield event(shape.result(stream.rids[index], index, answers[index], first))


async def _prompts(state: ServerState, body: GenerateBody) -> tuple[list[list[int]], bool]:
    if body.text is not None:
        texts = [body.text] if isinstance(body.text, str) else body.text
        return [await encode(state, text) for text in texts], isinstance(body.text, list)
    assert body.input_ids is not None
    if isinstance(body.input_ids[0], int):
        return [body.input_ids], False
    return body.input_ids, True


def _rids(rid: str | list[str] | None, count: int, is_list: bool) -> list[str]:
    if rid is None:
        return [new_rid() for _ in range(count)]
    if isinstance(rid, str):
        return [f"{rid}_{index}" for index in range(count)] if is_list else [rid]
    if len(rid) != count:
        raise ApiError(400, f"Field 'rid' has {len(rid)} names for {count} prompts.")
    return rid


def _samplings(body: GenerateBody, count: int, is_list: bool) -> list[Sampling]:
    given: NativeSampling | Sequence[NativeSampling] | None = body.sampling_params
    if given is None:
        given = NativeSampling()
    if isinstance(given, NativeSampling):
        given = [given] * count
    if len(given) != count:
        raise ApiError(
            400, f"Field 'sampling_params' has {len(given)} entries for {count} prompts."
        )
    top = (body.top_logprobs_num or 0) if body.return_logprob else None
    return [_sampling(params, top) for params in given]


def _sampling(params: NativeSampling, top_logprobs: int | None) -> Sampling:
    return Sampling(
        max_new_tokens=params.max_new_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        stop=stop_strings(params.stop),
        stop_token_ids=params.stop_token_ids,
        ignore_eos=params.ignore_eos,
        skip_special_tokens=params.skip_special_tokens,
        no_stop_trim=params.no_stop_trim,
        seed=params.sampling_seed,
        top_logprobs=top_logprobs,
    )
