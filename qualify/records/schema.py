"""One file of nouns: what is written down about a request, a cell and a launch.

Every class here is a frozen dataclass that becomes one JSON object a line (see `store`).
Missing is None. Times are seconds on the monotonic clock unless a name says otherwise.
Bump SCHEMA when a field changes meaning; readers accept every older version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = 1

Phase = Literal["probe", "warmup", "measured"]
CellStatus = Literal["finished", "failed", "superseded"]


@dataclass(frozen=True)
class Failure:
    """Why a request did not count. `cause` is a stable word, `message` what was seen.

    Causes: refused, connect, reset, timeout, http-status, stream-error, malformed-event,
    truncated-stream, no-usage, no-tokens, cancelled, bad-http, client-error.
    """

    cause: str
    message: str


@dataclass(frozen=True)
class Usage:
    """The server's own counts of one request; None where it did not say."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True)
class Speculation:
    """Integers of speculative decoding for one request, normalised (engine-protocols §3).

    V verify steps, P proposed drafts, C correct drafts, N0 tokens from prefill, T tokens
    committed without speculation, W tokens trimmed after commit; identity
    N = N0 + C + V + T - W. None means that the engine did not report it.
    `derived` names the integers that were computed rather than reported, and from what.
    """

    source: str
    V: int | None
    P: int | None
    C: int | None
    N0: int | None = None
    T: int | None = None
    W: int | None = None
    histogram: tuple[int, ...] | None = None  # index = correct drafts in a verify step
    derived: tuple[str, ...] = ()
    phases_s: dict[str, float] = field(default_factory=dict)  # draft, verify, replay, priming


@dataclass(frozen=True)
class Timing:
    """Times of one streamed request, from the moment its bytes were sent.

    tpot_ms = (t_last - t_first) / (N - n_first) * 1000, convention "first-event";
    tpot_common_ms is the widespread (t_last - t_first) / (N - 1). None where undefined.
    events = ((t_s, tokens or None), ...) for every event that carried tokens.
    """

    convention: str
    ttft_s: float | None
    t_first_s: float | None
    t_last_s: float | None
    t_end_s: float | None
    n_first: int | None
    tpot_ms: float | None
    tpot_common_ms: float | None
    max_gap_ms: float | None
    first_visible_s: float | None
    events: tuple[tuple[float, int | None], ...]


@dataclass(frozen=True)
class CacheEvidence:
    """How the cache stood when the request was sent (rule 5)."""

    policy: str  # cold | warm | session
    method: str | None  # flush | bypass | salt | no-cache | none
    flush_status: int | None = None
    flush_s: float | None = None
    flush_attempts: int | None = None


@dataclass(frozen=True)
class Record:
    """One request as it was observed."""

    run: str
    launch: str  # launch id with its attempt: r1.ngram#1
    round: int
    side: str  # mode or variant
    mode: str
    cell: str  # cell id inside its launch: prose@256/c1
    workload: str
    tokens: int  # planned prompt tokens
    concurrency: int
    phase: Phase
    index: int  # prompt index inside the cell
    turn: int  # 0 except in sessions
    prompt_id: str
    prompt_sha256: str  # over the token ids, or over the text where only text is known
    request: dict[str, Any]  # sampling, api, template_sha256, thinking, stream fields
    request_sha256: str  # over the body that was sent
    started_at: str  # ISO 8601 UTC
    t_start_s: float  # since the start of the cell's phase
    ok: bool
    failure: Failure | None
    http_status: int | None
    usage: Usage
    timing: Timing
    finish_reason: str | None
    output_text: str | None
    reasoning_text: str | None
    output_ids: tuple[int, ...] | None
    output_sha256: str | None  # over ids where known, else over text
    speculation: Speculation | None
    cache: CacheEvidence
    client_delay_ms: float | None  # worst lateness of the client's own clock during it
    notes: tuple[str, ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)  # as the engine said it
    schema: int = SCHEMA


@dataclass(frozen=True)
class CellEnd:
    """One line of cells.jsonl: a cell ended, or was set aside by a later start."""

    run: str
    launch: str
    cell: str
    status: CellStatus
    reason: str | None
    requests: int
    ok: int
    started_at: str
    duration_s: float
    window_s: float | None  # first measured send to last measured end
    evidence: dict[str, Any] = field(default_factory=dict)  # cold proof, flushes, counters
    schema: int = SCHEMA


@dataclass(frozen=True)
class LaunchRecord:
    """One line of launches.jsonl: what was started, how, and what it said of itself."""

    run: str
    launch: str
    plan_launch: str  # id in the plan, without the attempt
    round: int
    side: str
    mode: str
    status: Literal["started", "stopped", "failed"]
    at: str
    origin: dict[str, Any] = field(default_factory=dict)  # argv, env, digest, info, hashes
    reason: str | None = None
    schema: int = SCHEMA


@dataclass(frozen=True)
class ProbeRecord:
    """One line of probes.jsonl: a step of a probe, or (status not "step") how the probe ended.

    A probe asks what no measured cell shows; its requests enter no figure. Only the steps of
    a launch attempt in which the probe ended count: see `records.probes`. `seen` is JSON-ready.
    """

    run: str
    launch: str
    round: int
    side: str
    mode: str
    probe: str  # the name of the check that reads it
    step: str  # a stable word of that probe; "" in the line that ends it
    status: Literal["step", "finished", "failed"]
    at: str
    reason: str | None = None
    seen: dict[str, Any] = field(default_factory=dict)
    request: Record | None = None
    schema: int = SCHEMA
