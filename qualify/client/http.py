"""Send one request and get everything that came back, timed."""

from __future__ import annotations

import asyncio
import ssl

from qualify.client.clock import CLOCK, Clock
from qualify.client.exchange import Exchange
from qualify.client.reply import HttpRequest, RawReply


async def send(
    request: HttpRequest,
    clock: Clock = CLOCK,
    *,
    cancel: asyncio.Event | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> RawReply:
    """The answer to `request`, on a fresh connection made before the clock starts.

    Never raises for what network or server do: see RawReply.end and detail. Setting `cancel`
    ends it with what had arrived; cancelling the task closes the connection and loses it.
    Redirects are not followed and compressed bodies are not read; folding names both.
    """
    exchange = Exchange(request, clock, ssl_context)
    if cancel is None:
        return await exchange.run()
    watcher = asyncio.ensure_future(cancel.wait())
    watcher.add_done_callback(lambda w: None if w.cancelled() else exchange.cancel())
    try:
        return await exchange.run()
    finally:
        watcher.cancel()
