"""Timed bytes for tests: the public cases, the recorded streams, and streams put together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from qualify.client.reply import Arrival, HttpRequest, RawReply

CASES = Path(__file__).parents[1] / "cases"
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


@cache
def public_faults() -> dict[str, dict[str, Any]]:
    lines = (CASES / "public-faults.jsonl").read_text(encoding="utf-8").split("\n")
    return {case["id"]: case for case in map(json.loads, filter(None, lines))}


def fault_chunks(name: str) -> list[tuple[float, bytes]]:
    """(t_ms, bytes) of one public case."""
    chunks = public_faults()[name]["repro"]["chunks"]
    return [
        (c["t_ms"], c["text"].encode() if "text" in c else bytes.fromhex(c["hex"])) for c in chunks
    ]


def stream_faults() -> list[str]:
    return [n for n, case in public_faults().items() if case["repro"]["surface"] == "sse"]


def raw(
    chunks: Iterable[tuple[float, bytes]],
    *,
    status: int | None = 200,
    end: str = "complete",
    headers: Sequence[tuple[str, str]] = (),
    detail: str | None = None,
) -> RawReply:
    """A reply whose bytes came at the given ms."""
    arrivals = tuple(Arrival(t_ms / 1000.0, data) for t_ms, data in chunks)
    return RawReply(
        status=status,
        headers=tuple(headers),
        arrivals=arrivals,
        end=end,
        detail=detail,
        t_sent=0.0,
        t_headers_s=0.0 if status else None,
        t_end_s=arrivals[-1].t_s if arrivals else 0.0,
        started_at="2026-11-29T00:00:00Z",
    )


def fault(name: str) -> RawReply:
    return raw(fault_chunks(name))


def events(*payloads: tuple[float, Any]) -> RawReply:
    """A reply of one SSE event a read: (t_ms, payload object or literal data)."""
    return raw([(t_ms, sse(payload)) for t_ms, payload in payloads])


def sse(payload: Any) -> bytes:
    data = payload if isinstance(payload, str) else json.dumps(payload)
    return f"data: {data}\n\n".encode()


def text(piece: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A completions event."""
    return {"choices": [{"index": 0, "text": piece, "finish_reason": reason}], **more}


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chat event."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    """A usage event without choices."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return {"choices": [], "usage": counts}


def post(url: str, body: Any = None, **limits: Any) -> HttpRequest:
    data = b"" if body is None else json.dumps(body).encode()
    return HttpRequest("POST", url, (("content-type", "application/json"),), data, **limits)


def transcript(server: str, case: str) -> dict[str, Any]:
    path = CASES / "transcripts" / server / f"{case}.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def transcript_raw(kept: dict[str, Any]) -> RawReply:
    return raw(
        [(1000.0 * t, data.encode()) for t, data in kept["chunks"]],
        status=kept["status"],
        headers=[(k, v) for k, v in kept["headers"]],
    )
