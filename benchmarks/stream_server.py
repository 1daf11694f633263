"""A lean token server for benchmarks: one write a token at its due time, and its own log.

`python -m benchmarks.stream_server --port N --log FILE [--core K]`. A request's JSON body
says tokens, ttft_ms, gap_ms (0 = as fast as the socket takes them) and its number k. The log
has one JSON line a request: k, t_request, t_first, t_last (perf_counter, taken just before
each write), written at SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import time
from pathlib import Path

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_TEMPLATE = (
    'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":'
    '0,"text":" word","logprobs":null,"finish_reason":%s}],"usage":{"prompt_tokens":8,'
    '"completion_tokens":%d}}\n\n'
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _pieces(tokens: int) -> list[bytes]:
    made = [
        _chunk((_TEMPLATE % ('"length"' if k == tokens else "null", k)).encode())
        for k in range(1, tokens + 1)
    ]
    made[0] = _HEAD + made[0]
    return made


class _Stream(asyncio.Protocol):
    pieces: dict[int, list[bytes]] = {}  # noqa: RUF012 (one cache for all streams)
    log: list[dict[str, float]] = []  # noqa: RUF012

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = asyncio.get_running_loop()
        self._read = b""
        self._next = 0

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.lower().split(b"\r\n")
        size = next((int(x[15:]) for x in lines if x.startswith(b"content-length:")), 0)
        if len(body) < size:
            return
        ask = json.loads(body)
        tokens = ask["tokens"]
        self._pieces = self.pieces.setdefault(tokens, _pieces(tokens))
        self._gap_s = ask["gap_ms"] / 1000.0
        self._line = {"k": ask["k"], "t_request": now}
        # The loop's clock and perf_counter are one clock on Linux.
        self._due = self._loop.time() + ask["ttft_ms"] / 1000.0
        self._loop.call_at(self._due, self._token)

    def _token(self) -> None:
        if self._transport.is_closing():
            return
        now = time.perf_counter()
        if self._next == 0:
            self._line["t_first"] = now
        self._transport.write(self._pieces[self._next])
        self._next += 1
        if self._next < len(self._pieces):
            self._due += self._gap_s
            if self._gap_s:
                self._loop.call_at(self._due, self._token)
            else:
                self._loop.call_soon(self._token)
            return
        self._line["t_last"] = now
        self.log.append(self._line)
        self._transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        self._transport.close()


async def _serve(port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(_Stream, "127.0.0.1", port, backlog=1024)
    print("ready", flush=True)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    asyncio.run(_serve(options.port))
    lines = [json.dumps(line) + "\n" for line in _Stream.log]
    options.log.write_text("".join(lines), encoding="utf-8")
