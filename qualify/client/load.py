"""Load: a closed loop of independent requests, or of sessions whose turns depend on another.

Nothing is parsed here. A reply is handed to `on_done` as timed bytes; reading it (some
microseconds an event) holds up every stream that is still running, so with concurrency
above 1 keep replies and fold them when the window has ended. At concurrency 1 `on_done` runs
between requests and may fold at once.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from qualify.client.clock import CLOCK, Clock, DelayProbe, quiet_gc
from qualify.client.exchange import Exchange
from qualify.client.reply import HttpRequest, RawReply

_T = TypeVar("_T")

OnDone = Callable[[int, RawReply], Awaitable[None] | None]
OnTurn = Callable[[int, int, RawReply], Awaitable[None] | None]
Gate = Callable[[int], Awaitable[None]]
NextRequest = Callable[[RawReply | None], Awaitable[HttpRequest | None] | HttpRequest | None]


@dataclass(frozen=True)
class Window:
    """What a loop did, on the monotonic clock.

    t_start is the first send and t_end the last end (None when nothing was sent);
    mean_in_flight is the concurrency really reached: the sum of all requests' times over the
    window. send_spread_s lies between the first and the last send of the opening burst.
    client_delay_ms is the event loop's worst lateness in the window and cpu_share the
    client's CPU seconds per second: near 1, the client was the bottleneck.
    """

    started_at: str
    t_start: float | None
    t_end: float | None
    asked: int
    sent: int
    stopped: bool
    max_in_flight: int
    mean_in_flight: float | None
    send_spread_s: float | None
    client_delay_ms: float
    cpu_share: float

    @property
    def window_s(self) -> float | None:
        if self.t_start is None or self.t_end is None:
            return None
        return self.t_end - self.t_start


@dataclass
class _Ledger:
    """Counts that all workers share."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    running: set[Exchange] = field(default_factory=set)
    most: int = 0
    next: int = 0
    sent: int = 0


async def run_closed_loop(
    requests: Sequence[HttpRequest],
    concurrency: int,
    on_done: OnDone | None = None,
    *,
    stop: asyncio.Event | None = None,
    gate: Gate | None = None,
    clock: Clock = CLOCK,
    ssl_context: ssl.SSLContext | None = None,
) -> Window:
    """Send every request exactly once, started in order, at most `concurrency` at a time.

    A request starts when an earlier one has ended; `gate(index)` is awaited before it (a
    flush, for example), outside of every request's time. `stop` starts no more and cancels
    those in flight, which are handed over too. An exception out of `on_done` or `gate` ends
    the loop and is raised.
    """

    def source(index: int) -> NextRequest:
        return lambda before: requests[index] if before is None else None

    def done(index: int, _: int, raw: RawReply) -> Awaitable[None] | None:
        return on_done(index, raw) if on_done is not None else None

    return await _run(len(requests), source, concurrency, done, stop, gate, clock, ssl_context)


async def run_sessions(
    sessions: Sequence[NextRequest],
    concurrency: int,
    on_done: OnTurn | None = None,
    *,
    stop: asyncio.Event | None = None,
    gate: Gate | None = None,
    clock: Clock = CLOCK,
    ssl_context: ssl.SSLContext | None = None,
) -> Window:
    """Run conversations, each turn after its last one's reply; `concurrency` at a time.

    A session is called with the raw reply of its turn before (None at first) and returns its
    next request, or None when it is over. `on_done(session, turn, raw)` comes before that call.
    """

    def done(index: int, turn: int, raw: RawReply) -> Awaitable[None] | None:
        return on_done(index, turn, raw) if on_done is not None else None

    return await _run(
        len(sessions), sessions.__getitem__, concurrency, done, stop, gate, clock, ssl_context
    )


async def _run(
    count: int,
    source: Callable[[int], NextRequest],
    concurrency: int,
    on_done: OnTurn,
    stop: asyncio.Event | None,
    gate: Gate | None,
    clock: Clock,
    ssl_context: ssl.SSLContext | None,
) -> Window:
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    ledger = _Ledger()
    started_at = clock.wall()

    async def worker(probe: DelayProbe) -> None:
        while ledger.next < count and not (stop and stop.is_set()):
            index = ledger.next
            ledger.next += 1
            next_request = source(index)
            raw: RawReply | None = None
            turn = 0
            while True:
                if turn == 0 and gate is not None:
                    await gate(index)
                request = await _result(next_request(raw))
                if request is None or (stop and stop.is_set()):
                    break
                raw = await _one(request, probe)
                await _result(on_done(index, turn, raw))
                turn += 1

    async def _one(request: HttpRequest, probe: DelayProbe) -> RawReply:
        exchange = Exchange(request, clock, ssl_context)
        ledger.running.add(exchange)
        ledger.sent += 1
        ledger.most = max(ledger.most, len(ledger.running))
        try:
            raw = await exchange.run()
        finally:
            ledger.running.discard(exchange)
        end = raw.t_sent + raw.t_end_s
        ledger.spans.append((raw.t_sent, end))
        return replace(raw, client_delay_ms=probe.worst_ms(raw.t_sent, end))

    with quiet_gc():
        async with DelayProbe(clock) as probe:
            watcher = asyncio.ensure_future(_cancel_on(stop, ledger)) if stop else None
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(concurrency, count)):
                        group.create_task(worker(probe))
            except BaseExceptionGroup as group_error:
                raise group_error.exceptions[0] from None
            finally:
                if watcher is not None:
                    watcher.cancel()
    return _window(ledger, probe, count, concurrency, started_at, bool(stop and stop.is_set()))


async def _cancel_on(stop: asyncio.Event, ledger: _Ledger) -> None:
    await stop.wait()
    for exchange in list(ledger.running):
        exchange.cancel()


async def _result(value: Awaitable[_T] | _T) -> _T:
    return await value if inspect.isawaitable(value) else value


def _window(
    ledger: _Ledger,
    probe: DelayProbe,
    asked: int,
    concurrency: int,
    started_at: str,
    stopped: bool,
) -> Window:
    starts = sorted(a for a, _ in ledger.spans)
    t_start = starts[0] if starts else None
    t_end = max((b for _, b in ledger.spans), default=None)
    mean = spread = None
    delay_ms = 0.0
    if t_start is not None and t_end is not None:
        burst = starts[: min(concurrency, len(starts))]
        spread = burst[-1] - burst[0]
        delay_ms = probe.worst_ms(t_start, t_end)
        if t_end > t_start:
            mean = sum(b - a for a, b in ledger.spans) / (t_end - t_start)
    return Window(
        started_at=started_at,
        t_start=t_start,
        t_end=t_end,
        asked=asked,
        sent=ledger.sent,
        stopped=stopped,
        max_in_flight=ledger.most,
        mean_in_flight=mean,
        send_spread_s=spread,
        client_delay_ms=delay_ms,
        cpu_share=probe.cpu_share,
    )
