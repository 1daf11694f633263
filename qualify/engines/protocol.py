"""The seam between the harness and an engine's HTTP surface.

A protocol encodes requests, folds streams into replies, flushes, reads counters and
describes the server; it never starts or stops anything and never decides a verdict.
Everything is found by feature detection, never by version string.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as TypingProtocol

from qualify.client.reply import HttpRequest, RawReply, Reply
from qualify.prompts.prompt import Prompt

Scores = tuple[tuple[int, float], ...]  # (token id, log probability), the likeliest first


@dataclass(frozen=True)
class Sampling:
    """Every sampling field, always sent in full (a server's defaults are not greedy)."""

    output_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    ignore_eos: bool = True
    stop: tuple[str, ...] = ()  # texts that end an answer; evaluations of base models use them


@dataclass(frozen=True)
class Capabilities:
    """What this server was seen to do; found by probing, kept with the launch."""

    token_ids_in: bool
    token_ids_out: bool
    flush: bool
    bypass: bool  # a per-request switch that neither reads nor needs the prefix cache
    cached_tokens: bool  # reports how many prompt tokens came from a cache
    per_request_speculation: bool
    no_prefix_cache: bool = False  # the engine states that it keeps none
    ends: bool = True  # stops at an end of text and at stop texts
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineInfo:
    """What the server says of itself; None where it does not."""

    model: str | None
    architecture: str | None
    context_tokens: int | None  # input + output limit of one request
    pool_tokens: int | None  # resident tokens over all requests
    max_running: int | None
    version: str | None
    raw: dict[str, Any] = field(default_factory=dict)  # whole answers, by endpoint


@dataclass(frozen=True)
class FlushOutcome:
    """ok only when the server confirmed it; attempts and waiting are kept apart."""

    ok: bool
    status: int | None
    body: str
    attempts: int
    waited_s: float


@dataclass(frozen=True)
class Readiness:
    """alive: something answers; ready: it says that it can serve. Never by generating.

    refused: what it answered and a remedy, where waiting will not change the answer.
    """

    alive: bool
    ready: bool
    detail: str
    refused: tuple[str, str] | None = None


class EngineProtocol(TypingProtocol):
    """One server at one base URL. Control calls use httpx; measured ones the raw client."""

    name: str
    base_url: str

    async def readiness(self) -> Readiness: ...

    async def describe(self) -> EngineInfo: ...

    async def capabilities(self) -> Capabilities: ...

    def encode(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        request_id: str,
        bypass_cache: bool = False,
        first_byte_timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
    ) -> HttpRequest:
        """The streamed request for `prompt`; raises CellError when it cannot be exact."""
        ...

    def decode(self, raw: RawReply) -> Reply:
        """Fold timed bytes into a reply. Pure: no clock, no network."""
        ...

    async def flush(self, *, patience_s: float) -> FlushOutcome:
        """Empty the prefix cache, waiting (with at least 0.2 s between tries) while busy."""
        ...

    async def counters(self) -> dict[str, float] | None:
        """Server-wide counters, for before/after differences; None when not offered."""
        ...

    async def score_next(self, ids: Sequence[int], *, timeout_s: float) -> Scores:
        """(token id, log probability) of what may follow `ids`, the likeliest first.

        Raises CellError where the server gives none. Never timed, never of a drafting launch.
        """
        ...

    async def abort(self, request_id: str) -> bool: ...

    async def close(self) -> None: ...
