"""Answering a protocol's control calls, and encoding prompts, without a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from qualify.client.reply import Arrival, HttpRequest, RawReply
from qualify.engines.protocol import Sampling
from qualify.prompts.prompt import Prompt

Handler = Callable[[httpx.Request], httpx.Response]


@dataclass
class Desk:
    """routes: path -> answers (status, payload), the last one for ever. `asked` is the log."""

    routes: dict[str, list[tuple[int, Any]]]
    asked: list[tuple[str, str, Any]] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, request.url.path, body))
        answers = self.routes.get(request.url.path)
        if not answers:
            return httpx.Response(404, json={"detail": "Not Found"})
        status, payload = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(payload, str):
            return httpx.Response(status, text=payload)
        return httpx.Response(status, json=payload)

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self)

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.asked]


def prompt(*ids: int, text: str = "some text", exact: bool = False) -> Prompt:
    return Prompt("w@3/measured/0", tuple(ids), text, exact, "0" * 64, 0.5, "natural", 0)


def body_of(request: HttpRequest) -> dict[str, Any]:
    value = json.loads(request.body)
    assert isinstance(value, dict)
    return value


def sse(*payloads: Any, status: int = 200) -> RawReply:
    """A streamed answer, one event each 10 ms, closed with [DONE]."""
    events = [json.dumps(p) for p in payloads] + ["[DONE]"]
    return RawReply(
        status=status,
        headers=(("content-type", "text/event-stream"),),
        arrivals=tuple(
            Arrival(0.01 * (i + 1), f"data: {e}\n\n".encode()) for i, e in enumerate(events)
        ),
        end="complete",
        detail=None,
        t_sent=0.0,
        t_headers_s=0.01,
        t_end_s=0.01 * len(events),
        started_at="2026-01-01T00:00:00+00:00",
    )


GREEDY = Sampling(output_tokens=64)
