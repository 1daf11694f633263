"""The shared core of reading an answer: events in, one Reply out.

A dialect's folder turns each JSON object into calls on a Tally; everything else (SSE or one
JSON document, HTTP errors, in-band errors, the end of the stream, what counts as a failure
and in which order causes are named) is decided here once for all dialects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from qualify.client.plausible import hidden_tokens
from qualify.client.reply import RawReply, Reply
from qualify.client.sse import SseError, SseEvent, SseParser
from qualify.client.tally import Tally
from qualify.client.values import finite, quote
from qualify.records.schema import Failure

_ENDS = {
    "timeout": "timeout",
    "refused": "refused",
    "connect": "connect",
    "reset": "reset",
    "cancelled": "cancelled",
    "error": "bad-http",
    "cut": "truncated-stream",
}


class Folder(Protocol):
    """What a dialect supplies."""

    def event(self, payload: Mapping[str, Any], t_s: float, tally: Tally) -> None:
        """One streamed JSON object without an error in it."""
        ...

    def document(self, payload: Mapping[str, Any], t_s: float, tally: Tally) -> None:
        """The one JSON object of an answer that was not streamed."""
        ...

    def finish(self, tally: Tally) -> None:
        """After the last event: what only the whole stream can decide."""
        ...


def fold(raw: RawReply, folder: Folder) -> Reply:
    """Read a whole answer with one dialect."""
    tally = Tally()
    failure = _before_body(raw)
    if failure is None:
        body = b"".join(a.data for a in raw.arrivals)
        if body.lstrip()[:1] in (b"{", b"["):
            _document(raw, body, folder, tally)
        else:
            _stream(raw, folder, tally)
        folder.finish(tally)
        failure = _judge(raw, body, tally)
    return _reply(raw, tally, failure)


def _before_body(raw: RawReply) -> Failure | None:
    """Failures that make the body something else than an answer."""
    if raw.status is None:
        cause = "reset" if raw.end == "cut" else _ENDS.get(raw.end, "client-error")
        return Failure(cause, raw.detail or "the connection ended before any answer")
    if raw.end == "error":
        return Failure("bad-http", raw.detail or "the answer is not legal HTTP")
    if raw.status != 200:
        body = quote(b"".join(a.data for a in raw.arrivals))
        if 300 <= raw.status < 400:
            where = _header(raw, "location") or "an address it did not name"
            return Failure(
                "http-status",
                f"HTTP {raw.status}: redirected to {where}; redirects are not followed, "
                "give the final address",
            )
        return Failure("http-status", f"HTTP {raw.status}: {body or 'no body'}")
    encoding = (_header(raw, "content-encoding") or "identity").lower()
    if encoding != "identity":
        return Failure("bad-http", f"the body came as {encoding} although identity was asked for")
    return None


def _header(raw: RawReply, name: str) -> str | None:
    return next((v for k, v in raw.headers if k.lower() == name), None)


def _stream(raw: RawReply, folder: Folder, tally: Tally) -> None:
    parser = SseParser()
    try:
        for arrival in raw.arrivals:
            for event in parser.feed(arrival.data, arrival.t_s):
                _event(event, folder, tally)
        for event in parser.close():
            _event(event, folder, tally, tail=True)
    except SseError as error:
        tally.malformed = tally.malformed or str(error)


def _event(event: SseEvent, folder: Folder, tally: Tally, *, tail: bool = False) -> None:
    data = event.data.strip()
    if event.event == "error":
        payload = _object(data)
        what = (payload.get("error") or payload) if payload else data.decode("utf-8", "replace")
        tally.stream_error(what or "an error event without data")
        return
    if not data:
        return
    if data == b"[DONE]":
        tally.done = True
        return
    if tally.done:
        tally.note("events after [DONE] were left out")
        return
    payload = _object(data)
    if payload is None:
        if tail:
            tally.torn = f"the stream ended inside an event: {quote(data)}"
        elif tally.malformed is None:
            tally.malformed = f"not a JSON object: {quote(data)}"
        return
    if _error_in(payload, tally):
        return
    folder.event(payload, event.t_s, tally)


def _document(raw: RawReply, body: bytes, folder: Folder, tally: Tally) -> None:
    t_s = raw.arrivals[-1].t_s
    payload = _object(body)
    if payload is None:
        if raw.end == "complete":
            tally.malformed = f"not a JSON object: {quote(body)}"
        return
    tally.note("answered with one JSON document instead of a stream")
    tally.timing_undefined = "not streamed: TTFT and TPOT undefined"
    tally.done = True
    if not _error_in(payload, tally):
        folder.document(payload, t_s, tally)


def _object(data: bytes) -> Mapping[str, Any] | None:
    try:
        payload = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None


def _error_in(payload: Mapping[str, Any], tally: Tally) -> bool:
    error = payload.get("error")
    if error:
        tally.stream_error(error)
        return True
    if payload.get("object") == "error":
        tally.stream_error(payload)
        return True
    return False


def _judge(raw: RawReply, body: bytes, tally: Tally) -> Failure | None:
    """The first cause that holds, from the most telling to the least."""
    if tally.error is not None:
        return Failure("stream-error", tally.error)
    if tally.malformed is not None:
        return Failure("malformed-event", tally.malformed)
    n = tally.usage().completion_tokens
    if raw.end != "complete":
        said_end = tally.finish_reason is not None or tally.closing_usage
        whole = tally.done and said_end and n is not None
        if not whole:
            return Failure(
                _ENDS.get(raw.end, "client-error"),
                raw.detail or "the stream was cut before it was complete",
            )
        tally.note(f"everything had arrived, then the connection ended badly ({raw.end})")
    if tally.torn is not None:
        return Failure("truncated-stream", tally.torn)
    if not tally.events and not n:
        if not body:
            return Failure("no-tokens", "HTTP 200 with an empty body")
        said = f", finish reason {tally.finish_reason}" if tally.finish_reason else ""
        return Failure("no-tokens", f"the answer carried no tokens{said}: {quote(body)}")
    if tally.finish_reason is None and tally.done and tally.closing_usage:
        # Some servers never say why they stopped; a final count and [DONE] say that they did.
        tally.note("the server gave no finish reason")
    elif tally.finish_reason is None:
        end = "said [DONE]" if tally.done else "ended"
        return Failure("truncated-stream", f"the stream {end} without a finish reason")
    if n is None:
        return Failure("no-usage", "the server did not report how many tokens it generated")
    if n == 0:
        return Failure("no-tokens", "text arrived, but the server counted 0 tokens")
    if not tally.events:
        tally.note(f"{n} tokens counted, but no event carried one: TTFT and TPOT undefined")
    return None


def _reply(raw: RawReply, tally: Tally, failure: Failure | None) -> Reply:
    undefined = tally.timing_undefined or hidden_tokens(tally)
    ids = tally.ids()
    notes = [*tally.notes, *([undefined] if undefined else [])]
    return Reply(
        failure=failure,
        status=raw.status,
        events=tuple(tally.events),
        usage=tally.usage(),
        finish_reason=tally.finish_reason,
        text=tally.text(),
        reasoning=tally.reasoning(),
        ids=ids,
        speculation=None,
        t_end_s=raw.t_end_s,
        started_at=raw.started_at,
        notes=tuple(notes),
        extras=finite(tally.extras),
        timing_undefined=undefined,
    )
