"""`/tokenize` and `/detokenize`: the server's own tokenizer, so that a client can prove a shape."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from specdec.http.body import read_json
from specdec.http.chat import render
from specdec.http.errors import ApiError
from specdec.http.other_schema import DetokenizeBody, TokenizeBody
from specdec.http.state import state_of
from specdec.tokenizer import TokenizerError


async def tokenize(request: Request) -> JSONResponse:
    """{tokens, count, max_model_len}; a list of prompts gives lists."""
    state = state_of(request)
    body = await read_json(request, TokenizeBody, state.settings.max_body_bytes)
    special = body.add_special_tokens is not False
    if body.messages is not None:
        prompt: str | list[str] = render(
            state,
            body.messages,
            add_generation_prompt=body.add_generation_prompt is not False,
            extra=body.chat_template_kwargs,
        )
        special = False
    else:
        prompt = body.text if body.text is not None else body.prompt or ""
    try:
        if isinstance(prompt, str):
            tokens: list[int] | list[list[int]] = state.tokenizer.encode(prompt, special)
            count: int | list[int] = len(tokens)
        else:
            tokens = [state.tokenizer.encode(text, special) for text in prompt]
            count = [len(ids) for ids in tokens]
    except TokenizerError as error:
        raise ApiError(400, str(error)) from error
    limit = state.request_limit_tokens
    return JSONResponse({"tokens": tokens, "count": count, "max_model_len": limit})


async def detokenize(request: Request) -> JSONResponse:
    """{text}; a list of lists gives a list of texts."""
    state = state_of(request)
    body = await read_json(request, DetokenizeBody, state.settings.max_body_bytes)
    skip = body.skip_special_tokens is not False
    many = bool(body.tokens) and isinstance(body.tokens[0], list)
    rows: list[list[int]] = body.tokens if many else [body.tokens]  # type: ignore[assignment,list-item]
    vocab = state.engine.info.vocab_size
    for row in rows:
        unknown = next((token for token in row if not 0 <= token < vocab), None)
        if unknown is not None:
            raise ApiError(
                400, f"Token id {unknown} is unknown: the vocabulary has ids 0 to {vocab - 1}."
            )
    texts = [state.tokenizer.decode(row, skip) for row in rows]
    return JSONResponse({"text": texts if many else texts[0]})
