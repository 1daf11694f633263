"""Building the bytes of answers: heads, chunks, events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.scripted_engine.server import Play

_REASONS = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 404: "Not Found"}
Step = tuple[float, bytes]


def head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(payload: Any) -> bytes:
    """One SSE event with a JSON payload (or a string as it stands)."""
    data = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
    return b"data: " + data.encode() + b"\n\n"


def play(*steps: Step, close: str = "clean") -> Play:
    """Exact bytes, head included."""
    return Play(tuple(steps), close)


def stream_play(
    body: Iterable[Step],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    framing: str = "chunked",
    head_ms: float | None = None,
    close: str = "clean",
    finish: bool = True,
) -> Play:
    """A body at its times. framing: "chunked", "length" or "close" (until the end).

    The head goes out at head_ms, or in one write with the first body bytes. finish=False
    leaves the framing's own end out (a cut stream).
    """
    steps = list(body)
    fields = {"content-type": "text/event-stream", **(headers or {})}
    if framing == "chunked":
        fields["transfer-encoding"] = "chunked"
        out = [(t, chunk(data)) for t, data in steps if data]
        if finish:
            out.append((out[-1][0] if out else 0.0, b"0\r\n\r\n"))
    else:
        out = steps
        if framing == "length":
            missing = 0 if finish else 1
            fields["content-length"] = str(sum(len(d) for _, d in steps) + missing)
        else:
            fields["connection"] = "close"
    first = head(status, fields)
    if head_ms is not None:
        return Play(((head_ms, first), *out), close)
    if not out:
        return Play(((0.0, first),), close)
    (t0, d0), *rest = out
    return Play(((t0, first + d0), *rest), close)


def sse_play(events: Iterable[tuple[float, Any]], **options: Any) -> Play:
    """(t_ms, payload) events; bytes pass as they are, "[DONE]" and objects become events."""
    return stream_play([(t, p if isinstance(p, bytes) else event(p)) for t, p in events], **options)


def json_play(payload: Any, status: int = 200, t_ms: float = 0.0) -> Play:
    return text_play(json.dumps(payload), status, t_ms, "application/json")


def text_play(
    text: str, status: int = 200, t_ms: float = 0.0, content_type: str = "text/plain"
) -> Play:
    body = text.encode()
    fields = {
        "content-type": content_type,
        "content-length": str(len(body)),
        "connection": "close",
    }
    return Play(((t_ms, head(status, fields) + body),))
