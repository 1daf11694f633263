"""One request on a connection of its own: bytes out, timed bytes in, and how it ended.

The clock is read first thing when bytes arrive. Until the response ends nothing is parsed
but HTTP framing, in C; events and JSON are read after the end, by `qualify.client.stream`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from dataclasses import dataclass

from qualify.client.clock import CLOCK, Clock
from qualify.client.first_token import FirstTokenWatch
from qualify.client.reply import Arrival, HttpRequest, RawReply
from qualify.client.wire import Address, Framing, address_of, encode

# A server that does not close after its answer is left alone after this; in no time reported.
_CLOSE_PATIENCE_S = 0.02


@dataclass(frozen=True)
class _Limits:
    first_s: float | None
    idle_s: float | None


class _Stream(asyncio.Protocol):
    """The socket's side: stamps, stores, and finds the end."""

    def __init__(self, clock: Clock, limits: _Limits) -> None:
        self._now = clock.now
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._framing = Framing()
        self._watch = FirstTokenWatch()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._t_read = 0.0
        self._draining = False
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.arrivals: list[Arrival] = []
        self.end = "cancelled"
        self.detail: str | None = None
        self.t_sent = 0.0
        self.t_end = 0.0
        self.t_headers_s: float | None = None
        self.send_s: float | None = None

    @property
    def framing(self) -> Framing:
        return self._framing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Writing "pauses" while anything is left, so its end is seen as it happens.
        transport.set_write_buffer_limits(high=0)
        self.t_sent = self._now()

    def send(self, payload: bytes) -> None:
        if self.ended.done() or self._transport is None:
            return
        self.t_sent = self._t_read = self._now()
        self._transport.write(payload)
        if not self._draining:
            self.send_s = self._now() - self.t_sent
        self._arm()

    def pause_writing(self) -> None:
        self._draining = True

    def resume_writing(self) -> None:
        if self.send_s is None:
            self.send_s = self._now() - self.t_sent

    def data_received(self, data: bytes) -> None:
        now = self._now()
        framing = self._framing
        body = framing.feed(data)
        t_s = now - self.t_sent
        if body:
            self.arrivals.append(Arrival(t_s, body))
        if self.t_headers_s is None and framing.status is not None:
            self.t_headers_s = t_s
        self._t_read = now
        if framing.error is not None:
            self.finish("error", framing.error, now)
        elif framing.complete:
            self.finish("complete", None, now)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        if self.ended.done():
            return
        if error is None and self._framing.until_close:
            self.finish("complete", None)
        elif error is None or isinstance(error, ssl.SSLError):
            where = "before any answer" if self._framing.status is None else "inside the answer"
            self.finish("cut", f"the server closed the connection {where}")
        else:
            sending = " while the request was being sent" if self.send_s is None else ""
            self.finish("reset", f"the connection was reset{sending}: {error}")

    def finish(self, end: str, detail: str | None, t: float | None = None) -> None:
        """The first end stands; the connection is dropped, at once unless all is well."""
        if self.ended.done():
            return
        self.end, self.detail = end, detail
        self.t_end = self._now() if t is None else t
        if self._timer is not None:
            self._timer.cancel()
        self.ended.set_result(None)
        if end != "complete":
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _arm(self) -> None:
        """Wake up at the next moment at which a limit could have been passed.

        Reads never touch the timer: it looks at the time of the last one when it fires.
        """
        now = self._now()
        waits = []
        if self._limits.first_s is not None and not self._watch.seen(()):
            waits.append(self.t_sent + self._limits.first_s - now)
        if self._limits.idle_s is not None:
            left_s = self._t_read + self._limits.idle_s - now
            # Silent, but before the first token: look again later, not at once.
            waits.append(left_s if left_s > 0 else self._limits.idle_s)
        if waits:
            self._timer = self._loop.call_later(max(min(waits), 0.0), self._check)

    def _check(self) -> None:
        now = self._now()
        first_s, idle_s = self._limits.first_s, self._limits.idle_s
        silent_s = now - self._t_read
        if not self._watch.seen(self.arrivals):
            if first_s is not None and now - self.t_sent >= first_s:
                self.finish("timeout", f"no token within first_byte_timeout_s = {first_s:g}", now)
                return
        elif idle_s is not None and silent_s >= idle_s:
            self.finish("timeout", f"silent for more than idle_timeout_s = {idle_s:g}", now)
            return
        self._arm()


class Exchange:
    """One request, sent once. run() never raises for what the network or server does."""

    def __init__(
        self,
        request: HttpRequest,
        clock: Clock = CLOCK,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._request = request
        self._clock = clock
        self._ssl = ssl_context
        self._stream: _Stream | None = None
        self._connecting: asyncio.Task[_Stream] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """End it now; run() returns what had arrived, with end "cancelled"."""
        self._cancelled = True
        if self._stream is not None:
            self._stream.finish("cancelled", "cancelled by the client")
        elif self._connecting is not None:
            self._connecting.cancel()

    async def run(self) -> RawReply:
        """Connect, send, and collect until the response ends in whatever way."""
        clock, request = self._clock, self._request
        t_start = clock.now()
        try:
            address, payload = address_of(request.url), encode(request)
            self._connecting = asyncio.ensure_future(self._connect(address))
            if self._cancelled:
                self._connecting.cancel()
            stream = self._stream = await self._connecting
        except TimeoutError:
            limit = request.connect_timeout_s
            return self._unconnected("timeout", f"no connection in {limit:g} s (connect)", t_start)
        except OSError as error:
            return self._unconnected(*_connect_failure(error), t_start)
        except ValueError as error:
            return self._unconnected("client-error", str(error), t_start)
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            return self._unconnected("cancelled", "cancelled by the client", t_start)
        connect_s = clock.now() - t_start
        started_at = clock.wall()
        if self._cancelled:
            stream.finish("cancelled", "cancelled by the client")
        stream.send(payload)
        del payload
        try:
            await stream.ended
            # Asked to close, the server closes: its slot is free before the next request.
            await asyncio.wait((stream.closed,), timeout=_CLOSE_PATIENCE_S)
        finally:
            stream.finish("cancelled", "cancelled by the client")
            stream.abort()
        return RawReply(
            status=stream.framing.status,
            headers=stream.framing.headers,
            arrivals=tuple(stream.arrivals),
            end=stream.end,
            detail=stream.detail,
            t_sent=stream.t_sent,
            t_headers_s=stream.t_headers_s,
            t_end_s=stream.t_end - stream.t_sent,
            started_at=started_at,
            connect_s=connect_s,
            send_s=stream.send_s,
        )

    async def _connect(self, address: Address) -> _Stream:
        request = self._request
        limits = _Limits(request.first_byte_timeout_s, request.idle_timeout_s)
        context = None
        if address.tls:
            context = self._ssl or ssl.create_default_context()
        async with asyncio.timeout(request.connect_timeout_s):
            _, stream = await asyncio.get_running_loop().create_connection(
                lambda: _Stream(self._clock, limits), address.host, address.port, ssl=context
            )
        return stream

    def _unconnected(self, end: str, detail: str, t_start: float) -> RawReply:
        now = self._clock.now()
        return RawReply(
            status=None,
            headers=(),
            arrivals=(),
            end=end,
            detail=detail,
            t_sent=now,
            t_headers_s=None,
            t_end_s=0.0,
            started_at=self._clock.wall(),
            connect_s=now - t_start,
        )


def _connect_failure(error: OSError) -> tuple[str, str]:
    # Several addresses that were all refused come as one error without a number.
    refused = isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(
        error
    )
    if refused:
        return "refused", f"the connection was refused: {error}"
    return "connect", f"no connection: {error}"
