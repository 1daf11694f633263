"""Two sides compared, prompt by prompt. Standard library only."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import mean
from typing import Any

from recompute_cells import integers, steps, window
from recompute_math import above, t_point
from recompute_more import prefill_share
from recompute_records import Data, good, n_of, sound

SAME = ("temperature", "top_p", "top_k", "seed", "ignore_eos", "output_tokens", "until",
        "template_sha256", "thinking")  # fmt: skip


def finding(rounds: dict[int, dict[Any, float]], margin: float) -> dict[str, Any] | None:
    if not rounds:
        return None
    means = [mean(v.values()) for v in rounds.values()]
    centre, edge = mean(means), math.log1p(margin)
    keys = list(dict.fromkeys(k for v in rounds.values() for k in v))
    prompts = [mean(v[k] for v in rounds.values() if k in v) for k in keys]
    sample = means if len(means) >= 3 else prompts
    found: dict[str, Any] = {"ratio": math.exp(centre), "n": len(sample), "p": None}
    if len(sample) < 2:
        return {**found, "low": None, "high": None, "outcome": "not enough data"}
    around = mean(sample)
    deviation = math.sqrt(sum((x - around) ** 2 for x in sample) / (len(sample) - 1))
    error, df = deviation / math.sqrt(len(sample)), len(sample) - 1
    if error > 0:
        found["p"] = min(
            1.0, above((abs(centre) - edge) / error, df) + above((abs(centre) + edge) / error, df)
        )
    else:
        found["p"] = 0.0 if abs(centre) > edge else 1.0
    half = t_point(df) * error
    found |= {"low": math.exp(centre - half), "high": math.exp(centre + half)}
    return {**found, "outcome": word(found, found["p"], edge)}


def word(found: dict[str, Any], p: float, edge: float) -> str:
    centre = math.log(found["ratio"])
    if p <= 0.05 and abs(centre) > edge:
        return "ahead" if centre > 0 else "behind"
    inside_margin = -edge <= math.log(found["low"]) and math.log(found["high"]) <= edge
    return "tied" if inside_margin else "not enough data"


def correct(pairs: list[dict[str, Any]], margin: float) -> None:
    """Holm over all comparisons: the k-th smallest p counts (m - k + 1) times, in order."""
    for kind in ("decode", "wall"):
        claims = [p[kind] for p in pairs if p[kind] and p[kind]["p"] is not None]
        for f in claims:
            smaller = [g for g in claims if g["p"] <= f["p"]]
            f["p_holm"] = max(
                min(1.0, g["p"] * sum(h["p"] >= g["p"] for h in claims)) for g in smaller
            )
            f["family"] = len(claims)
        for f in claims:
            f["outcome"] = word(f, f["p_holm"], math.log1p(margin))


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
        k: defaultdict(dict) for k in ("decode", "wall", "same", "cycle", "tokens")
    }
    known = []
    for number, a, b in usable:
        key = a["prompt_id"], a["turn"]
        ta, tb = a["timing"], b["timing"]
        kinds["decode"][number][key] = math.log(tb["tpot_ms"] / ta["tpot_ms"])
        kinds["wall"][number][key] = math.log(tb["t_last_s"] / ta["t_last_s"])
        same = tb["t_first_s"] + ta["t_last_s"] - ta["t_first_s"]
        kinds["same"][number][key] = math.log(tb["t_last_s"] / same)
        sa, sb = steps(a, drafts[0]), steps(b, drafts[1])
        if sa and sb:
            known.append((sa, sb))
            kinds["cycle"][number][key] = math.log(sb[2] / sb[0] / (sa[2] / sa[0]))
            kinds["tokens"][number][key] = math.log(sa[1] / sa[0] / (sb[1] / sb[0]))
    whole = bool(usable) and len(known) == len(usable)

    def centre(name: str, known: bool) -> float | None:
        return math.exp(mean(mean(v.values()) for v in kinds[name].values())) if known else None

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
        "wall_same_prefill": centre("same", bool(usable)),
        "prefill_share": prefill_share([b for _, _, b in usable]),
        "cycle_factor": centre("cycle", whole),
        "tokens_factor": centre("tokens", whole),
        "break_even": even,
        "round_ratios": {str(n): math.exp(mean(v.values())) for n, v in kinds["decode"].items()},
        "proposed": (integers([a for _, a, _ in usable]) or {}).get("P"),
    }


def likeness(data: Data, r: dict[str, Any]) -> tuple[Any, ...]:
    cache = r["cache"]
    request = r["request"]
    return (
        cache["policy"], cache["method"] or "none",
        repr(data.instrumented.get(r["launch"]) or None),  # a list of what is switched on
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
