"""Server-sent events: one `data:` line an event, errors inside the stream, `[DONE]` at its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from specdec.http.errors import ApiError, error_response, native_error
from specdec.logs import logger

DONE = b"data: [DONE]\n\n"


def event(payload: Any) -> bytes:
    """One event. Compact JSON holds no raw line break, so one line is always enough."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"data: {text}\n\n".encode()


class EventStream:
    """An ASGI response that sends events until their source ends or the client goes away.

    The head is sent with the first event, so that a request refused before it still gets its
    proper status. The source is always closed, which is where it aborts what it started.
    """

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[], Any]) -> None:
        self._events = events
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream. Returns when it has ended or the client left."""
        pump = asyncio.create_task(self._pump(scope, receive, send))
        watch = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({pump, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, watch):
                task.cancel()
            await asyncio.gather(pump, watch, return_exceptions=True)
            self._close()

    async def _pump(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        try:
            async for chunk in self._events:
                if not started:
                    await _send_head(send)
                    started = True
                await _send_body(send, chunk)
        except ApiError as error:
            if not started:
                await error_response(scope["path"], error)(scope, receive, send)
                return
            await _send_body(send, event(native_error(error)))
        except Exception as error:
            logger.exception("A stream failed.")
            failure = ApiError(500, f"The server failed on this request: {type(error).__name__}.")
            if not started:
                await error_response(scope["path"], failure)(scope, receive, send)
                return
            await _send_body(send, event(native_error(failure)))
        if not started:
            await _send_head(send)
        await _send_body(send, DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_head(send: Send) -> None:
    headers = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send_body(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: asyncio.Task[Any]) -> Any:
    """The result of `work`, which is cancelled when the client goes away first.

    Raises ApiError 499 then; nobody reads it, but the log tells.
    """
    watch = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ApiError(499, "The client went away.")
    finally:
        for task in (work, watch):
            task.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)
