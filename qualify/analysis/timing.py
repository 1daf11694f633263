"""Three different measures of a cell, never mixed (rule 2)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis.speculation import Cycle, pooled_cycle
from qualify.analysis.stats import Summary, summarise
from qualify.checks.implausible import decoded_tokens, flaw
from qualify.checks.natural_end import forced_past_end
from qualify.checks.pool import Pool, pool
from qualify.checks.select import Place, completion_tokens, counts
from qualify.checks.stream import cause_of
from qualify.records.schema import Record


@dataclass(frozen=True)
class Overlap:
    """Decode gaps during which another request was being prefilled (rule 10).

    share: of all decode time; clear_ms_per_token: over the other gaps, where events say
    how many tokens they carried.
    """

    gaps: int
    overlapped: int
    share: float
    clear_ms_per_token: float | None


@dataclass(frozen=True)
class CellStats:
    """One cell of one launch. Seconds and milliseconds as the names say; missing is None.

    throughput_tok_s: all counted tokens over window_s (first send to last end), the whole
    window, ramp and drain included; average_concurrency is what was really reached in it.
    per_user_tok_s = 1000 / median TPOT is one stream's rate and is never multiplied.
    ttft_steady_s leaves out the first wave (the first `concurrency` requests sent at once).
    """

    launch: str
    plan_launch: str
    round: int
    purpose: str
    side: str
    mode: str
    cell: str
    workload: str
    tokens: int
    concurrency: int
    cache: str
    status: str
    requests: int
    counted: int
    causes: dict[str, int]
    ttft_s: Summary
    ttft_steady_s: Summary | None
    tpot_ms: Summary
    tpot_left_out: dict[str, int]
    pooled_tpot_ms: float | None
    tpot_common_ms: float | None
    end_s: Summary
    prefill_share: float | None
    per_user_tok_s: float | None
    output_tokens: int
    window_s: float | None
    throughput_tok_s: float | None
    average_concurrency: float | None
    speculation: Pool | None
    cycle: Cycle | None
    overlap: Overlap | None
    forced_past_end: int | None
    prompt_classes: dict[str, int]


def cell_stats(place: Place) -> CellStats:
    """Everything about one place; a cell without a single success has None for its figures."""
    counted = place.counted
    sound = [r for r in counted if flaw(r) is None]
    tpot = summarise([r.timing.tpot_ms for r in sound if r.timing.tpot_ms is not None])
    ttft = [r.timing.ttft_s for r in counted if r.timing.ttft_s is not None]
    window = window_s(place.records)
    tokens = sum(completion_tokens(r) or 0 for r in counted)
    common = [r.timing.tpot_common_ms for r in sound if r.timing.tpot_common_ms is not None]
    reports = any(r.speculation is not None for r in counted)
    attempt = place.end.launch if place.end else place.launch.id
    return CellStats(
        launch=attempt,
        plan_launch=place.launch.id,
        round=place.launch.round,
        purpose=place.launch.purpose,
        side=place.side,
        mode=place.mode,
        cell=place.cell.id,
        workload=place.cell.workload,
        tokens=place.cell.prompts.tokens,
        concurrency=place.cell.concurrency,
        cache=place.cell.cache,
        status=place.end.status if place.end else "missing",
        requests=len(place.records),
        counted=len(counted),
        causes=dict(sorted(Counter(c for r in place.records if (c := cause_of(r))).items())),
        ttft_s=summarise(ttft),
        ttft_steady_s=steady_ttft(place),
        tpot_ms=tpot,
        tpot_left_out=dict(sorted(Counter(f for r in counted if (f := flaw(r))).items())),
        pooled_tpot_ms=pooled_tpot_ms(sound),
        tpot_common_ms=summarise(common).median,
        end_s=summarise([r.timing.t_last_s for r in counted if r.timing.t_last_s is not None]),
        prefill_share=prefill_share(counted),
        per_user_tok_s=1e3 / tpot.median if tpot.median else None,
        output_tokens=tokens,
        window_s=window,
        throughput_tok_s=tokens / window if window and tokens else None,
        average_concurrency=average_concurrency(place.records, window),
        speculation=pool(counted) if reports else None,
        cycle=pooled_cycle(sound, speculative=place.speculative),
        overlap=overlap(counted) if place.cell.concurrency > 1 else None,
        forced_past_end=forced_past_end(counted),
        prompt_classes=prompt_classes(counted),
    )


def window_s(records: Sequence[Record]) -> float | None:
    """First send to last end of the measured requests, failed ones included."""
    spans = _spans(records)
    return max(e for _, e in spans) - min(s for s, _ in spans) if spans else None


def average_concurrency(records: Sequence[Record], window: float | None) -> float | None:
    """Time spent inside requests over the window: what a label "concurrency N" only asks for."""
    return busy_s(records) / window if window else None


def busy_s(records: Sequence[Record]) -> float:
    """Time spent inside requests, summed over all of them."""
    return math.fsum(e - s for s, e in _spans(records))


def _spans(records: Sequence[Record]) -> list[tuple[float, float]]:
    return [
        (r.t_start_s, r.t_start_s + end)
        for r in records
        if (end := r.timing.t_end_s if r.timing.t_end_s is not None else r.timing.t_last_s)
        is not None
    ]


def pooled_tpot_ms(sound: Sequence[Record]) -> float | None:
    """Total decode time over total decoded tokens: the mean that no short answer distorts."""
    spans = [
        (last - first, decoded)
        for r in sound
        if (first := r.timing.t_first_s) is not None
        and (last := r.timing.t_last_s) is not None
        and (decoded := decoded_tokens(r))
    ]
    tokens = sum(n for _, n in spans)
    return math.fsum(t for t, _ in spans) / tokens * 1e3 if tokens else None


def prefill_share(counted: Sequence[Record]) -> float | None:
    """Share of the time to the last token that passed before the first one."""
    both = [
        (r.timing.t_first_s, r.timing.t_last_s)
        for r in counted
        if r.timing.t_first_s is not None and r.timing.t_last_s
    ]
    total = math.fsum(last for _, last in both if last is not None)
    return math.fsum(first for first, _ in both if first is not None) / total if total else None


def steady_ttft(place: Place) -> Summary | None:
    """TTFT without the first wave of a closed loop, which is sent all at once.

    None at concurrency 1, and where every request belongs to the first wave.
    """
    wave = place.cell.concurrency
    if wave < 2 or len(place.records) <= wave:
        return None
    later = sorted(place.records, key=lambda r: (r.t_start_s, r.index))[wave:]
    return summarise([r.timing.ttft_s for r in later if counts(r) and r.timing.ttft_s is not None])


def overlap(counted: Sequence[Record]) -> Overlap | None:
    """Split decode gaps by whether another request of the cell was in its prefill."""
    prefills = [
        (r.t_start_s, r.t_start_s + first)
        for r in counted
        if (first := r.timing.t_first_s) is not None
    ]
    gaps = hit = clear_tokens = 0
    hit_s = all_s = clear_s = 0.0
    known = True
    for record in counted:
        events = record.timing.events
        if not events:
            continue
        begin, end = record.t_start_s + events[0][0], record.t_start_s + events[-1][0]
        # Its own prefill ends where its first gap begins, so it is never among them.
        near = [(s, e) for s, e in prefills if s < end and e > begin]
        for (t0, _), (t1, tokens) in itertools.pairwise(events):
            start, stop = record.t_start_s + t0, record.t_start_s + t1
            gaps += 1
            all_s += stop - start
            if any(s < stop and e > start for s, e in near):
                hit += 1
                hit_s += stop - start
            elif tokens is None:
                known = False
            else:
                clear_tokens += tokens
                clear_s += stop - start
    if not gaps or all_s <= 0:
        return None
    clear = clear_s / clear_tokens * 1e3 if known and clear_tokens else None
    return Overlap(gaps, hit, hit_s / all_s, clear)


def prompt_classes(counted: Sequence[Record]) -> dict[str, int]:
    """How many prompts were natural text and how many repetitive: filler flatters a drafter."""
    found = Counter(str(r.request.get("prompt_class") or "unknown") for r in counted)
    return dict(sorted(found.items()))
