"""A raw epoll client in plain Python: what no general client can be expected to beat.

Closed loop, one connection a request, a stamp at each read, no HTTP parsing beyond looking
for the end. It knows the benchmark's server: one event a chunk, chunked framing.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass


@dataclass
class FloorReply:
    t_sent: float
    t_first: float = 0.0
    t_last: float = 0.0
    tokens: int = 0


def run_floor(port: int, bodies: list[bytes], concurrency: int) -> list[FloorReply]:
    """Replies in the order of `bodies`; times are perf_counter."""
    replies: list[FloorReply | None] = [None] * len(bodies)
    poll = select.epoll()
    open_now: dict[int, tuple[int, socket.socket, FloorReply]] = {}
    following = 0

    def begin() -> None:
        nonlocal following
        k, following = following, following + 1
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(bodies[k])
        reply = FloorReply(time.perf_counter())
        sock.sendall(head + bodies[k])
        sock.setblocking(False)
        poll.register(sock, select.EPOLLIN)
        open_now[sock.fileno()] = (k, sock, reply)

    while following < min(concurrency, len(bodies)):
        begin()
    while open_now:
        for fd, _ in poll.poll():
            now_open = open_now[fd]
            k, sock, reply = now_open
            data = sock.recv(1 << 18)
            now = time.perf_counter()
            events = data.count(b'"text"')
            if events:
                if not reply.tokens:
                    reply.t_first = now
                reply.t_last = now
                reply.tokens += events
            if not data:
                poll.unregister(sock)
                sock.close()
                del open_now[fd]
                replies[k] = reply
                if following < len(bodies):
                    begin()
    return [r for r in replies if r is not None]
