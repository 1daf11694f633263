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
    "reset", "cancelled". t_sent is the monotonic time at which the last request byte was
    handed to the socket; every other time is relative to it.
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
    """A parsed answer. `failure` is None only for a complete, well-formed success."""

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
