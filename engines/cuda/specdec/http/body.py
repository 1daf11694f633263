"""A request's body: read within a limit, parsed as JSON, checked against a schema."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from specdec.http.errors import ApiError
from specdec.http.sentences import sentence

Schema = TypeVar("Schema", bound=BaseModel)

# Above this size parsing is moved off the event loop.
_LARGE_BODY_BYTES = 65_536
# A client that is still sending reads our answer only after its last byte, so an over-long body
# is read and thrown away up to this multiple of the limit before we answer and hang up.
_DISCARD_FACTOR = 4


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body. Raises ApiError 413 beyond `limit_bytes`, 400 when the client left."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit_bytes * _DISCARD_FACTOR:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit_bytes:
                chunks.clear()
                if size > limit_bytes * _DISCARD_FACTOR:
                    break
            else:
                chunks.append(chunk)
    except ClientDisconnect as error:
        raise ApiError(400, "The client left before its request was whole.") from error
    if size > limit_bytes:
        raise _too_large(limit_bytes)
    return b"".join(chunks)


def _too_large(limit_bytes: int) -> ApiError:
    return ApiError(
        413,
        f"The request's body is larger than {limit_bytes} bytes. Send a shorter prompt, or start "
        "the server with a larger --max-body-bytes.",
    )


async def read_json(request: Request, schema: type[Schema], limit_bytes: int) -> Schema:
    """The body as `schema`. Raises ApiError 400 with a sentence that names the field at fault."""
    body = await read_body(request, limit_bytes)
    parse = partial(parse_json, body, schema)
    if len(body) > _LARGE_BODY_BYTES:
        return await asyncio.to_thread(parse)
    return parse()


def parse_json(body: bytes, schema: type[Schema]) -> Schema:
    """JSON bytes as `schema`. Raises ApiError 400."""
    if not body.strip():
        raise ApiError(400, "The request's body is empty. Send a JSON object.")
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"The request's body is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ApiError(400, "The request's body must be a JSON object.")
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise ApiError(400, sentence(error.errors(include_url=False), schema)) from error
