"""What the client hands to the rest: one request's answer, as it was observed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from qualify.records.schema import Failure, Speculation, Usage


@dataclass(frozen=True)
class HttpRequest:
    """A request whose body is encoded before the clock starts.

    url is absolute; body is the exact bytes; first_byte_timeout_s bounds the wait for the
    first token (None = no bound), idle_timeout_s the silence between two reads after it.
    Comments, role-only events and progress reports before the first token do not start the
    idle clock: a long prefill behind them is governed by first_byte_timeout_s alone.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connect_timeout_s: float = 10.0
    first_byte_timeout_s: float | None = None
    idle_timeout_s: float | None = None


@dataclass(frozen=True)
class Arrival:
    """Body bytes and the time at which they were read, seconds since the request was sent."""

    t_s: float
    data: bytes


@dataclass(frozen=True)
class RawReply:
    """An HTTP answer before any parsing: status, headers, timed body bytes, how it ended.

    end: "complete" (framing says so), "cut" (closed in the middle), "timeout", "refused",
    "connect" (no connection for another reason: name, route, TLS), "reset", "cancelled",
    "error" (not legal HTTP, or something this client does not accept), "client-error" (the
    request itself could not be sent: no such kind of address, a broken header).
    t_sent is the monotonic time just before the first request byte was handed to the socket,
    on a connection that already stood; every other time is relative to it. send_s is how long
    the kernel took to accept the whole request, connect_s the connection's own time (name,
    TCP, TLS), which is in no other figure. client_delay_ms is the worst lateness of the
    event loop that was seen while the request ran (None: no probe ran).
    """

    status: int | None
    headers: tuple[tuple[str, str], ...]
    arrivals: tuple[Arrival, ...]
    end: str
    detail: str | None
    t_sent: float
    t_headers_s: float | None
    t_end_s: float
    started_at: str
    connect_s: float | None = None
    send_s: float | None = None
    client_delay_ms: float | None = None


@dataclass(frozen=True)
class TokenEvent:
    """One event that carried generated text or tokens. Deltas, never cumulative.

    t_s: when its bytes were read. tokens: how many it carried where the server said so
    (ids or running counts), else None. Events that share one read share one time.
    """

    t_s: float
    text: str = ""
    reasoning: str = ""
    tool: str = ""
    tokens: int | None = None
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Reply:
    """A parsed answer. `failure` is None only for a complete, well-formed success.

    timing_undefined says why its times mean nothing (tokens that were not streamed), and is
    None for an ordinary stream. `speculation` is filled by the engine's own protocol from
    `extras`, which holds what the server said: usage, meta_info, timings, metrics.
    """

    failure: Failure | None
    status: int | None
    events: tuple[TokenEvent, ...]
    usage: Usage
    finish_reason: str | None
    text: str
    reasoning: str
    ids: tuple[int, ...] | None
    speculation: Speculation | None
    t_end_s: float
    started_at: str
    notes: tuple[str, ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)
    timing_undefined: str | None = None
