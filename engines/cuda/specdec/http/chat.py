"""`POST /v1/chat/completions`: a conversation through the checkpoint's own template."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specdec.http.body import read_json
from specdec.http.errors import ApiError
from specdec.http.fields import isolation
from specdec.http.meta import meta_info
from specdec.http.openai import Envelope, ending, sampling_of
from specdec.http.openai_schema import ChatBody, Message
from specdec.http.sse import EventStream, event, unless_gone
from specdec.http.state import ServerState, state_of
from specdec.http.submit import check, collecting, encode, job_spec, new_rid, submit
from specdec.request import TokenLogprob
from specdec.stream import Stream
from specdec.tokenizer import TokenizerError


async def chat_completions(request: Request) -> Response | EventStream:
    """Answer as one object or as a stream: the role, the text, the finish reason, then usage."""
    state = state_of(request)
    body = await read_json(request, ChatBody, state.settings.max_body_bytes)
    prompt_ids = await _prompt(state, body)
    rid = body.rid or new_rid()
    top = (body.top_logprobs or 0) if body.logprobs else None
    sampling = sampling_of(body, body.max_completion_tokens or body.max_tokens, top)
    key = isolation(body.cache_salt, body.extra_key)
    spec = job_spec(state, rid, prompt_ids, sampling, cache_key=key)
    stream = await submit(state, [spec])
    if body.stream:
        envelope = Envelope(state, body, rid, "chat.completion.chunk")
        return EventStream(_events(state, stream, body, envelope), stream.close)
    try:
        (answer,) = await unless_gone(request.receive, collecting(stream))
    finally:
        stream.close()
    envelope = Envelope(state, body, rid, "chat.completion")
    choice: dict[str, Any] = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": answer.text,
            "reasoning_content": None,
            "tool_calls": None,
        },
        "logprobs": _logprobs(state, answer.token_ids, answer.logprobs),
        **ending(answer.end.finish),
    }
    if body.return_token_ids:
        choice.update(token_ids=answer.token_ids, prompt_token_ids=prompt_ids)
    if body.return_meta_info:
        choice["meta_info"] = meta_info(rid, answer.end)
    return JSONResponse(
        envelope.wrap(
            [choice], usage=envelope.usage([answer.end]), **envelope.extension(answer.end)
        )
    )


async def _events(
    state: ServerState, stream: Stream, body: ChatBody, envelope: Envelope
) -> AsyncIterator[bytes]:
    last = None
    async for _, delta in stream:
        check(delta)
        more = {"usage": envelope.usage([delta])} if envelope.usage_each else {}
        if last is None:
            role = {"reasoning_content": None, "role": "assistant", "content": ""}
            yield event(envelope.wrap([_chunk(role)], **more))
        last = delta
        ids = {"token_ids": list(delta.token_ids)} if body.return_token_ids else {}
        if delta.text or (ids and delta.token_ids) or (more and delta.finish is None):
            content = {"reasoning_content": None, "content": delta.text}
            logprobs = _logprobs(state, delta.token_ids, delta.logprobs)
            yield event(envelope.wrap([_chunk(content, logprobs=logprobs, **ids)], **more))
        if delta.finish is not None:
            nothing = {"reasoning_content": None}
            yield event(envelope.wrap([_chunk(nothing, **ending(delta.finish))], **more))
    if last is not None:
        for closing in envelope.closing([last], keep_nulls=True):
            yield closing


def _chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    plain = {"logprobs": None, "finish_reason": None, "matched_stop": None}
    return {"index": 0, "delta": delta, **plain, **more}


async def _prompt(state: ServerState, body: ChatBody) -> list[int]:
    if body.input_ids is not None:
        return body.input_ids
    assert body.messages is not None
    text = render(
        state,
        body.messages,
        add_generation_prompt=body.add_generation_prompt is not False,
        extra=body.chat_template_kwargs,
    )
    return await encode(state, text, add_special_tokens=False)


def render(
    state: ServerState,
    messages: list[Message],
    *,
    add_generation_prompt: bool,
    extra: dict[str, Any] | None,
) -> str:
    """The prompt text of a conversation. Raises ApiError 400 where the template refuses it."""
    plain = []
    for message in messages:
        fields = message.model_dump(exclude_none=True)
        content = message.content
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        plain.append({**fields, "content": content or ""})
    try:
        return state.tokenizer.render_chat(
            plain, add_generation_prompt=add_generation_prompt, extra=extra
        )
    except TokenizerError as error:
        raise ApiError(400, str(error)) from error


def _logprobs(
    state: ServerState, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob] | None
) -> dict[str, Any] | None:
    if logprobs is None:
        return None

    def show(token: int, logprob: float) -> dict[str, Any]:
        text = state.tokenizer.decode([token], skip_special_tokens=False)
        raw = list(state.tokenizer.token_bytes(token))
        return {"token": text, "bytes": raw, "logprob": logprob}

    return {
        "content": [
            {
                **show(token, entry.logprob),
                "top_logprobs": [show(other, logprob) for other, logprob in entry.top],
            }
            for token, entry in zip(token_ids, logprobs, strict=True)
        ]
    }
