"""Tails, steady parts, goodput, acceptance, launches and crossings. Standard library only."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from statistics import mean, median, stdev
from typing import Any

from recompute_cells import span, spread, window
from recompute_math import t_point
from recompute_records import Data, good, n_of, sound

LIMITS = {
    "goodput_ttft_s": "ttft_s", "goodput_tpot_ms": "tpot_ms", "goodput_end_s": "t_last_s",
}  # fmt: skip


def tail(requests: list[dict[str, Any]], name: str) -> dict[str, Any]:
    values = [v for r in requests if (v := r["timing"][name]) is not None]
    told = spread(values)
    known = [(q, told[k]) for q, k in ((0.9, "p90"), (0.95, "p95"), (0.99, "p99"))
             if told[k] is not None]  # fmt: skip
    reach, value = known[-1] if known else (None, None)
    middle = median(values) if values else None
    return {
        "n": len(values),
        "quantile": reach,
        "value": value,
        "over_median": value / middle if value is not None and middle else None,
        "worst": {"value": max(values)} if values else None,
    }


def prefill_share(requests: list[dict[str, Any]]) -> float | None:
    times = [
        (t["t_first_s"], t["t_last_s"])
        for t in (r["timing"] for r in requests)
        if t["t_first_s"] is not None and t["t_last_s"]
    ]
    return sum(a for a, _ in times) / sum(b for _, b in times) if times else None


def rate_interval(requests: list[dict[str, Any]], below: str) -> dict[str, float] | None:
    """Of sum(C) / sum(below): prompts are the units, the residuals give the spread."""
    top: dict[Any, int] = defaultdict(int)
    bottom: dict[Any, int] = defaultdict(int)
    for r in requests:
        s = r["speculation"]
        if s and s["C"] is not None and s[below] is not None:
            top[r["prompt_id"], r["turn"]] += s["C"]
            bottom[r["prompt_id"], r["turn"]] += s[below]
    keys = [k for k in bottom if bottom[k] > 0]
    if len(keys) < 3:
        return None
    whole = sum(bottom[k] for k in keys)
    rate = sum(top[k] for k in keys) / whole
    residuals = [top[k] - rate * bottom[k] for k in keys]
    # They sum to 0, so that their standard deviation is the estimator's.
    half = t_point(len(keys) - 1) * stdev(residuals) * math.sqrt(len(keys)) / whole
    return {"low": max(0.0, rate - half), "high": rate + half}


def acceptance(requests: list[dict[str, Any]]) -> dict[str, Any] | None:
    told = [r for r in requests if r["speculation"]]
    if not told:
        return None
    length = rate_interval(told, "V")
    pieces, fresh = 0, 0
    for ids in (r["output_ids"] for r in requests if r["output_ids"] is not None):
        fours = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
        pieces += len(fours)
        fresh += len(set(fours))
    return {
        "prompts": len({(r["prompt_id"], r["turn"]) for r in told}),
        "accept_length": None if length is None else {k: 1 + v for k, v in length.items()},
        "draft_match_rate": rate_interval(told, "P"),
        "repetition": (pieces - fresh) / pieces if pieces else None,
    }


def steady(launches: list[list[dict[str, Any]]], concurrency: int) -> dict[str, Any] | None:
    parts = []
    for requests in launches:
        ends = [s for r in requests if (s := span(r))]
        if concurrency < 2 or len(requests) <= concurrency or len(ends) < len(requests):
            continue
        ordered = sorted(zip(ends, requests, strict=True), key=lambda pair: pair[0][0])
        begin, last = ordered[0][0][0], max(e for _, e in ends)
        firsts = [
            r["t_start_s"] + r["timing"]["t_first_s"]
            if r["timing"]["t_first_s"] is not None
            else s[1]
            for s, r in ordered[:concurrency]
        ]
        up, down = max(firsts), sorted(e for _, e in ends)[-concurrency]
        if down <= up:
            parts.append((up - begin, 0.0, last - up, None))
            continue
        inside = [
            tokens
            for r in good(requests)
            for t, tokens in r["timing"]["events"]
            if up < r["t_start_s"] + t <= down
        ]
        parts.append((up - begin, down - up, last - down, None if None in inside else sum(inside)))
    if not parts:
        return None
    seconds = sum(p[1] for p in parts)
    tokens = None if any(p[3] is None for p in parts) else sum(p[3] or 0 for p in parts)
    return {
        "ramp_s": sum(p[0] for p in parts),
        "window_s": seconds,
        "drain_s": sum(p[2] for p in parts),
        "tokens": tokens,
        "tok_s": tokens / seconds if tokens is not None and seconds else None,
    }


def goodput(launches: list[list[dict[str, Any]]], gates: dict[str, float]) -> dict[str, Any] | None:
    limits = {k: gates[k] for k in LIMITS if k in gates}
    sent = [r for requests in launches for r in requests]
    seconds = sum(w for requests in launches if (w := window(requests)))
    if not limits or not sent or not seconds:
        return None
    kept = [
        r
        for r in good(sent)
        if all(
            r["timing"][LIMITS[k]] is not None and r["timing"][LIMITS[k]] <= v
            for k, v in limits.items()
        )
    ]
    return {
        "requests": len(sent),
        "good": len(kept),
        "share": len(kept) / len(sent),
        "requests_per_s": len(kept) / seconds,
        "tok_s": sum(n_of(r) or 0 for r in kept) / seconds,
    }


def more_figures(
    launches: list[list[dict[str, Any]]], concurrency: int, gates: dict[str, float]
) -> dict[str, Any]:
    counted = good([r for requests in launches for r in requests])
    return {
        "tpot_tail_ms": tail([r for r in counted if sound(r)], "tpot_ms"),
        "ttft_tail_s": tail(counted, "ttft_s"),
        "prefill_share": prefill_share(counted),
        "acceptance": acceptance(counted),
        "steady": steady(launches, concurrency),
        "goodput": goodput(launches, gates),
    }


def launch_variation(data: Data, side: str, cell: str) -> dict[str, Any]:
    logs = {}
    for launch in data.launches():
        if launch["side"]["name"] == side:
            mine = [r for r in good(data.requests.get((launch["id"], cell), [])) if sound(r)]
            if mine:
                logs[launch["id"]] = {
                    (r["prompt_id"], r["turn"]): math.log(r["timing"]["tpot_ms"]) for r in mine
                }
    shared = set.intersection(*map(set, logs.values()))
    levels = {k: mean(v[p] for p in shared) for k, v in logs.items()}
    several = len(levels) > 1
    return {
        "prompts": len(shared),
        "tpot_ms": {k: math.exp(v) for k, v in levels.items()},
        "spread": stdev(levels.values()) if several else None,
        "range": math.exp(max(levels.values()) - min(levels.values())) if several else None,
    }


def crossing(points: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """points: (prompt tokens, decode finding) in order. The first change of lead, and where
    the lines through the ratios and through the ends of their intervals pass 1."""
    called = [(i, f["outcome"]) for i, (_, f) in enumerate(points)
              if f["outcome"] in ("ahead", "behind")]  # fmt: skip
    turns = [(a, b) for (a, x), (b, y) in pairwise(called) if x != y]
    found: dict[str, Any] = {"changes": len(turns), "bracket": None, "estimate": None}
    if not turns:
        return found
    a, b = turns[0]
    found["bracket"] = [points[a][0], points[b][0]]

    def through(name: str) -> list[float]:
        at = []
        for (x0, f0), (x1, f1) in zip(points[a:b], points[a + 1 : b + 1], strict=True):
            y0, y1 = math.log(f0[name]), math.log(f1[name])
            if (y0 > 0) != (y1 > 0) or (y0 < 0) != (y1 < 0):
                at.append(math.exp(math.log(x0) - y0 * math.log(x1 / x0) / (y1 - y0)))
        return at

    if all(f["low"] is not None for _, f in points[a : b + 1]):
        middle, ends = through("ratio"), through("low") + through("high")
        found["estimate"] = {
            "tokens": math.sqrt(middle[0] * middle[-1]),
            "low": min(ends),
            "high": max(ends),
        }
    return found
