"""Raw sockets, a schedule, and a log: what was really written and when."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

HEAD_LIMIT = 1 << 20


@dataclass(frozen=True)
class Play:
    """Bytes with their times in ms after the last request byte was read, then an end.

    close: "clean" (FIN after all bytes), "reset" (RST), "half" (FIN, but go on reading until
    the client leaves), "open" (say nothing more; wait until the client leaves).
    """

    steps: tuple[tuple[float, bytes], ...]
    close: str = "clean"


@dataclass
class Seen:
    """One request and what was done about it. Times are perf_counter of this process."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    t_accept: float
    t_request: float  # the last request byte had been read
    writes: list[tuple[float, int]] = field(default_factory=list)  # just before each write
    client_left: bool = False
    open_at_once: int = 0

    def write_ms(self, index: int) -> float:
        """When write `index` happened, in ms after the request had been read."""
        return 1000.0 * (self.writes[index][0] - self.t_request)


# A handler answers with a Play, or with bytes as it makes them (each written at once).
Answer = Play | AsyncIterator[bytes]
Handler = Callable[[Seen], Answer | Awaitable[Answer]]


class Reset(Exception):
    """Raised out of a handler's stream: end the connection with RST."""


class Cut(Exception):
    """Raised out of a handler's stream: end the connection with FIN, framing unfinished."""


class ScriptedServer:
    """`async with ScriptedServer(handler) as server:`; `server.url`, `server.log`."""

    def __init__(
        self,
        handler: Handler,
        *,
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._handler = handler
        self._port = port
        self._ssl = ssl_context
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.log: list[Seen] = []
        self.open_now = 0
        self.most_open = 0

    @property
    def port(self) -> int:
        assert self._server is not None, "not started"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"{'https' if self._ssl else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Any:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self._port, ssl=self._ssl, limit=HEAD_LIMIT, backlog=1024
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client left; what it got is in the log
        except asyncio.CancelledError:
            pass  # the server is closing; nobody awaits this task
        finally:
            self.open_now -= 1
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        t_accept = time.perf_counter()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seen = await _read_request(reader, t_accept)
        seen.open_at_once = self.open_now
        self.log.append(seen)
        answer = self._handler(seen)
        if isinstance(answer, Awaitable):
            answer = await answer
        close = await self._until_left(answer, seen, reader, writer)
        if close == "reset":
            linger = struct.pack("ii", 1, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return
        if close == "half":
            writer.write_eof()
        if close in ("half", "open"):
            await reader.read()
            return
        await writer.drain()

    async def _until_left(
        self,
        answer: Answer,
        seen: Seen,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> str:
        """Give the answer, and drop it as soon as the client has closed the connection."""
        run = _play if isinstance(answer, Play) else _relay
        giving = asyncio.ensure_future(run(answer, seen, writer))  # type: ignore[arg-type]
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((giving, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not giving.done():
                seen.client_left = True
                giving.cancel()
            await asyncio.wait((giving,))
            return "clean" if giving.cancelled() else giving.result()
        finally:
            giving.cancel()
            leaving.cancel()
            await asyncio.gather(giving, leaving, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader, t_accept: float) -> Seen:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    t_request = time.perf_counter()
    parts = urlsplit(target)
    query = {k: v[-1] for k, v in parse_qs(parts.query).items()}
    return Seen(method, parts.path, query, headers, body, t_accept, t_request)


async def sleep_until(t: float) -> None:
    """Wait for a moment on perf_counter; late by a selector's rounding, at most about 1 ms."""
    left = t - time.perf_counter()
    if left > 0:
        await asyncio.sleep(left)


def _write(data: bytes, seen: Seen, writer: asyncio.StreamWriter) -> bool:
    if writer.transport.is_closing():
        seen.client_left = True
        return False
    seen.writes.append((time.perf_counter(), len(data)))
    writer.write(data)
    return True


async def _play(script: Play, seen: Seen, writer: asyncio.StreamWriter) -> str:
    for t_ms, data in script.steps:
        await sleep_until(seen.t_request + t_ms / 1000.0)
        if data and not _write(data, seen, writer):
            return "clean"
    return script.close


async def _relay(pieces: AsyncIterator[bytes], seen: Seen, writer: asyncio.StreamWriter) -> str:
    try:
        async for data in pieces:
            if not _write(data, seen, writer):
                break
    except Reset:
        return "reset"
    except Cut:
        return "clean"
    finally:
        # Let the generator's own cleanup run now, while its request is still known.
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()
    return "clean"
