#!/usr/bin/env python3
"""Compute a run's figures again from its raw records, and compare them with summary.json.

    python scripts/recompute.py reports/quickstart-20260101-120000

Reads plan.json, cells.jsonl and records.jsonl. Standard library only, and not one line of
qualify: a second, plainer way to the same numbers. Exit code 0: all figures agree; 1: some
differ (each is printed); 2: a file is missing or unreadable.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

TOLERANCE = 1e-6  # relative; summary.json keeps 9 significant digits
DEFAULT_MARGIN = 0.03
LEAST_TPOT_MS, LEAST_DECODED = 0.02, 3
SAME = ("temperature", "top_p", "top_k", "seed", "ignore_eos", "output_tokens", "until",
        "template_sha256", "thinking")  # fmt: skip


def lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut by a kill; the run's own reader names it
        if isinstance(entry, dict):
            found.append(entry)
    return found


# ---- which records stand ------------------------------------------------------------------


class Data:
    """The measured requests of every planned cell, in prompt order."""

    def __init__(self, folder: Path) -> None:
        self.plan = json.loads((folder / "plan.json").read_text("utf-8"))
        standing: dict[tuple[str, str], str] = {}
        finished = set()
        for end in lines(folder / "cells.jsonl"):
            key = end["launch"].rsplit("#", 1)[0], end["cell"]
            if end["status"] == "finished" or (end["status"] == "failed" and key not in finished):
                standing[key] = end["launch"]
            if end["status"] == "finished":
                finished.add(key)
        self.requests: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for record in lines(folder / "records.jsonl"):
            key = record["launch"].rsplit("#", 1)[0], record["cell"]
            if record["phase"] == "measured" and standing.get(key) == record["launch"]:
                self.requests[key].append(record)
        for found in self.requests.values():
            found.sort(key=lambda r: (r["index"], r["turn"]))
        started = [x for x in lines(folder / "launches.jsonl") if x["status"] == "started"]
        self.instrumented = {
            x["launch"]: (x.get("origin") or {}).get("instrumentation") for x in started
        }

    def launches(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.plan["launches"]
        return found

    def drafts(self, mode: str) -> bool:
        entry = (self.plan["engine"].get("modes") or {}).get(mode) or {}
        said = entry.get("drafter") if isinstance(entry, dict) else None
        return said != "none" if isinstance(said, str) else mode != "target-only"


def n_of(r: dict[str, Any]) -> int | None:
    n = r["usage"]["completion_tokens"]
    return n if r["ok"] and n else None


def good(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in requests if n_of(r)]


def sound(r: dict[str, Any]) -> bool:
    """Does its TPOT count? See the same rule in docs/summary.md."""
    t, n = r["timing"], n_of(r)
    return bool(
        n and t["n_first"] is not None and t["tpot_ms"] is not None
        and n - t["n_first"] >= LEAST_DECODED and t["tpot_ms"] >= LEAST_TPOT_MS
    )  # fmt: skip


# ---- one cell -----------------------------------------------------------------------------


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


# ---- two sides ----------------------------------------------------------------------------


def t_point(df: int) -> float:
    """Two-sided 95% point of Student's t, by bisection on its distribution function."""

    def inside(t: float) -> float:  # P(|T| < t), by Simpson's rule over the angle atan(t/sqrt(df))
        top, pieces = math.atan(t / math.sqrt(df)), 2000
        width = top / pieces
        total = sum(
            (1 if i in (0, pieces) else 4 if i % 2 else 2) * math.cos(i * width) ** (df - 1)
            for i in range(pieces + 1)
        )
        scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
        return 2 * scale * total * width / 3

    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < 0.95 else (low, middle)
    return low


def finding(rounds: dict[int, dict[Any, float]], margin: float) -> dict[str, Any] | None:
    if not rounds:
        return None
    means = [mean(v.values()) for v in rounds.values()]
    centre, edge = mean(means), math.log1p(margin)
    keys = list(dict.fromkeys(k for v in rounds.values() for k in v))
    prompts = [mean(v[k] for v in rounds.values() if k in v) for k in keys]
    sample = means if len(means) >= 3 else prompts
    found: dict[str, Any] = {"ratio": math.exp(centre), "n": len(sample)}
    if len(sample) < 2:
        return {**found, "low": None, "high": None, "outcome": "not enough data"}
    around = mean(sample)
    deviation = math.sqrt(sum((x - around) ** 2 for x in sample) / (len(sample) - 1))
    half = t_point(len(sample) - 1) * deviation / math.sqrt(len(sample))
    low, high = centre - half, centre + half
    outcome = "not enough data"
    if centre > edge and low > 0:
        outcome = "ahead"
    elif centre < -edge and high < 0:
        outcome = "behind"
    elif low >= -edge and high <= edge:
        outcome = "tied"
    return {**found, "low": math.exp(low), "high": math.exp(high), "outcome": outcome}


def compared(
    pairs: list[tuple[int, dict[str, Any], dict[str, Any]]],
    drafts: tuple[bool, bool],
    margin: float,
) -> dict[str, Any]:
    """pairs: (round, a request of the side, the same prompt's of the reference)."""
    usable = [
        (number, a, b)
        for number, a, b in pairs
        if a["prompt_sha256"] == b["prompt_sha256"] and n_of(a) == n_of(b)
        and sound(a) and sound(b)
    ]  # fmt: skip
    kinds: dict[str, dict[int, dict[Any, float]]] = {
        k: defaultdict(dict) for k in ("decode", "wall", "cycle", "tokens")
    }
    known = []
    for number, a, b in usable:
        key = a["prompt_id"], a["turn"]
        ta, tb = a["timing"], b["timing"]
        kinds["decode"][number][key] = math.log(tb["tpot_ms"] / ta["tpot_ms"])
        kinds["wall"][number][key] = math.log(tb["t_last_s"] / ta["t_last_s"])
        sa, sb = steps(a, drafts[0]), steps(b, drafts[1])
        if sa and sb:
            known.append((sa, sb))
            kinds["cycle"][number][key] = math.log(sb[2] / sb[0] / (sa[2] / sa[0]))
            kinds["tokens"][number][key] = math.log(sa[1] / sa[0] / (sb[1] / sb[0]))
    whole = bool(usable) and len(known) == len(usable)

    def centre(name: str) -> float | None:
        return math.exp(mean(mean(v.values()) for v in kinds[name].values())) if whole else None

    even = None
    if whole:
        needed = (sum(a[2] for a, _ in known) / sum(a[0] for a, _ in known)) / (
            sum(b[2] for _, b in known) / sum(b[1] for _, b in known)
        )
        even = {
            "needed_tokens_per_step": needed,
            "reached_tokens_per_step": sum(a[1] for a, _ in known) / sum(a[0] for a, _ in known),
        }
    return {
        "prompts": len({(a["prompt_id"], a["turn"]) for _, a, _ in usable}),
        "decode": finding(kinds["decode"], margin),
        "wall": finding(kinds["wall"], margin),
        "cycle_factor": centre("cycle"),
        "tokens_factor": centre("tokens"),
        "break_even": even,
    }


def likeness(data: Data, r: dict[str, Any]) -> tuple[Any, ...]:
    cache = r["cache"]
    request = r["request"]
    return (
        cache["policy"], cache["method"] or "none", data.instrumented.get(r["launch"]) or None,
        *(repr(request.get(k)) for k in SAME),
    )  # fmt: skip


def pair_figures(data: Data, side: str, reference: str, cell: str, margin: float) -> dict[str, Any]:
    ours, theirs = {}, {}
    modes = {}
    for launch in data.launches():
        name = launch["side"]["name"]
        modes[name] = launch["side"]["mode"]
        if launch["purpose"] == "measure" and name in (side, reference):
            into = ours if name == side else theirs
            into[launch["round"]] = data.requests.get((launch["id"], cell), [])
    a_all = [r for v in ours.values() for r in good(v)]
    b_all = [r for v in theirs.values() for r in good(v)]
    alike = len({likeness(data, r) for r in a_all + b_all}) <= 1 or not (a_all and b_all)
    drafts = data.drafts(modes[side]), data.drafts(modes[reference])
    found = [
        (number, a, b)
        for number, requests in ours.items()
        for a in good(requests)
        for b in good(theirs.get(number, []))
        if (a["prompt_id"], a["turn"]) == (b["prompt_id"], b["turn"])
    ]
    result = compared(found if alike else [], drafts, margin)
    rates = {}
    for label, group in (("a", ours), ("b", theirs)):
        for number, requests in group.items():
            w = window(requests)
            if w and requests and len(good(requests)) == len(requests):
                rates[label, number] = sum(n_of(r) or 0 for r in requests) / w
    logs = [
        math.log(rates["a", k] / rates["b", k])
        for k in ours
        if ("a", k) in rates and ("b", k) in rates
    ]
    result["throughput_ratio"] = math.exp(mean(logs)) if logs and alike else None
    return result


def self_figures(data: Data, cell: str, margin: float) -> dict[str, Any]:
    mine = [
        (launch["round"], good(data.requests.get((launch["id"], cell), [])))
        for launch in data.launches()
        if launch["side"]["name"] == data.plan["baseline"]
    ]
    measured = [x for x in mine if x[1]]
    first = {(r["prompt_id"], r["turn"]): r for r in measured[0][1]}
    found = [
        (number, r, first[r["prompt_id"], r["turn"]])
        for number, requests in measured[1:]
        for r in requests
        if (r["prompt_id"], r["turn"]) in first
    ]
    return compared(found, (False, False), margin)


# ---- the whole, and the comparison --------------------------------------------------------


def recompute(data: Data, told: dict[str, Any]) -> dict[str, Any]:
    """The figures that summary.json tells, for the same cells and pairs, in its order."""
    shape = {
        (launch["id"], cell["id"]): launch for launch in data.launches() for cell in launch["cells"]
    }
    cells = []
    for entry in told["cells"]:
        key = entry["plan_launch"], entry["cell"]
        drafts = data.drafts(shape[key]["side"]["mode"])
        cells.append(figures([data.requests.get(key, [])], drafts))
    sides = []
    for entry in told["sides"]:
        launches = [
            launch
            for (_, cell), launch in shape.items()
            if cell == entry["cell"] and launch["side"]["name"] == entry["side"]
            and launch["purpose"] == "measure"
        ]  # fmt: skip
        requests = [data.requests.get((x["id"], entry["cell"]), []) for x in launches]
        sides.append(figures(requests, data.drafts(launches[0]["side"]["mode"])))
    own = [self_figures(data, e["cell"], DEFAULT_MARGIN) for e in told["self_pairs"]]
    rounds = {x["round"] for x in data.launches() if x["purpose"] == "measure"}
    seen = [math.expm1(abs(math.log(e["decode"]["ratio"]))) for e in own if e["decode"]]
    margin = max([DEFAULT_MARGIN, *seen]) if len(rounds) < 3 else DEFAULT_MARGIN
    pairs = [
        pair_figures(data, e["side"], e["reference"], e["cell"], margin) for e in told["pairs"]
    ]
    planned = [(launch["id"], cell["id"]) for launch in data.launches() for cell in launch["cells"]]
    return {
        "margin": {"value": margin},
        "cells": cells,
        "sides": sides,
        "self_pairs": own,
        "pairs": pairs,
        "places": len(planned),
    }


def differences(ours: Any, told: Any, where: str = "") -> tuple[int, list[str]]:
    """(figures compared, those that differ). Only what was recomputed is compared."""
    if isinstance(ours, dict) and isinstance(told, dict):
        pairs = [(f"{where}.{k}".lstrip("."), v, told.get(k, "absent")) for k, v in ours.items()]
    elif isinstance(ours, list) and isinstance(told, list):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(ours, told, strict=False))]
        if len(ours) != len(told):
            return 1, [f"{where}: {len(ours)} entries recomputed, {len(told)} told"]
    else:
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (ours, told))
        same = (
            math.isclose(ours, told, rel_tol=TOLERANCE, abs_tol=1e-12) if numbers else ours == told
        )
        return 1, [] if same else [f"{where}: recomputed {ours!r}, summary.json says {told!r}"]
    results = [differences(a, b, name) for name, a, b in pairs]
    return sum(n for n, _ in results), [d for _, found in results for d in found]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    try:
        told = json.loads((folder / "summary.json").read_text("utf-8"))
        data = Data(folder)
    except (OSError, ValueError, KeyError) as error:
        print(f"{folder} cannot be read: {error!r}", file=sys.stderr)
        return 2
    again = recompute(data, told)
    if again.pop("places") != len(told["cells"]):
        print("summary.json does not tell of every planned cell")
        return 1
    compared_count, found = differences(again, told)
    for line in found:
        print(line)
    print(f"{compared_count:,} figures compared, {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
