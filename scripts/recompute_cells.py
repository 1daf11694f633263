"""Figures of one cell from its requests. Standard library only."""

from __future__ import annotations

from statistics import median
from typing import Any

from recompute_records import good, n_of, sound


def spread(values: list[float]) -> dict[str, Any]:
    n, ordered = len(values), sorted(values)
    found: dict[str, Any] = {"n": n, "median": median(ordered) if n else None}
    for name, percent in (("p90", 90), ("p95", 95), ("p99", 99)):
        if n * (100 - percent) < 100:
            found[name] = None
            continue
        at = (n - 1) * percent / 100
        low = int(at)
        high = min(low + 1, n - 1)
        found[name] = ordered[low] * (1 - (at - low)) + ordered[high] * (at - low)
    ends = {"min": ordered[0], "max": ordered[-1]} if n else {"min": None, "max": None}
    return {**found, **ends, "mean": sum(values) / n if n else None}


def span(r: dict[str, Any]) -> tuple[float, float] | None:
    t = r["timing"]
    end = t["t_end_s"] if t["t_end_s"] is not None else t["t_last_s"]
    return None if end is None else (r["t_start_s"], r["t_start_s"] + end)


def window(requests: list[dict[str, Any]]) -> float | None:
    spans = [s for r in requests if (s := span(r))]
    return max(s[1] for s in spans) - min(s[0] for s in spans) if spans else None


def integers(requests: list[dict[str, Any]]) -> dict[str, Any] | None:
    specs = [r["speculation"] for r in requests if r["speculation"]]
    if not specs:
        return None

    def total(name: str) -> int | None:
        known = [s[name] for s in specs if s[name] is not None]
        return sum(known) if known else None

    def rate(top: str, bottom: str) -> float | None:
        both = [s for s in specs if s[top] is not None and s[bottom] is not None]
        below = sum(s[bottom] for s in both)
        return sum(s[top] for s in both) / below if below else None

    per_step = rate("C", "V")
    return {
        **{name: total(name) for name in ("V", "P", "C", "T", "W")},
        "draft_match_rate": rate("C", "P"),
        "accept_length": None if per_step is None else 1 + per_step,
        "proposed_per_step": rate("P", "V"),
    }


def steps(r: dict[str, Any], drafts: bool) -> tuple[int, int, float] | None:
    """(steps after the first event, tokens in them, seconds)."""
    t, n, s = r["timing"], n_of(r), r["speculation"]
    if not n or None in (t["n_first"], t["t_first_s"], t["t_last_s"]):
        return None
    tokens, seconds = n - t["n_first"], t["t_last_s"] - t["t_first_s"]
    if tokens <= 0 or seconds <= 0:
        return None
    if not drafts:
        return tokens, tokens, seconds
    if s is None:
        return None
    first = 1 if s["N0"] is None else s["N0"]
    if s["V"] is not None and s["T"] is not None:
        count = s["V"] + s["T"]
    elif s["C"] is not None:
        count = n - first - s["C"] + (s["W"] or 0)
    elif s["P"] == 0:
        count = n - first
    else:
        return None
    count -= t["n_first"] > first
    return (count, tokens, seconds) if count > 0 else None


def cycle(requests: list[dict[str, Any]], drafts: bool) -> dict[str, Any] | None:
    known = [s for r in requests if (s := steps(r, drafts))]
    count = sum(s[0] for s in known)
    if not count:
        return None
    return {
        "steps": count,
        "cycle_ms": 1e3 * sum(s[2] for s in known) / count,
        "tokens_per_step": sum(s[1] for s in known) / count,
    }


def figures(launches: list[list[dict[str, Any]]], drafts: bool) -> dict[str, Any]:
    """One or more launches of one side in one cell."""
    everything = [r for requests in launches for r in requests]
    counted = good(everything)
    plain = [r for r in counted if sound(r)]
    windows = [w for requests in launches if (w := window(requests))]
    tpot = spread([r["timing"]["tpot_ms"] for r in plain])
    tokens = sum(n_of(r) or 0 for r in counted)
    busy = sum(s[1] - s[0] for r in everything if (s := span(r)))
    return {
        "requests": len(everything),
        "counted": len(counted),
        "ttft_s": spread([t for r in counted if (t := r["timing"]["ttft_s"]) is not None]),
        "tpot_ms": tpot,
        "end_s": spread([t for r in counted if (t := r["timing"]["t_last_s"]) is not None]),
        "per_user_tok_s": 1e3 / tpot["median"] if tpot["median"] else None,
        "throughput_tok_s": tokens / sum(windows) if windows and tokens else None,
        "average_concurrency": busy / sum(windows) if windows else None,
        "speculation": integers(counted),
        "cycle": cycle(plain, drafts),
    }
