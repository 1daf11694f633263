"""Evaluations again, from evals.jsonl and scores.jsonl. Standard library only."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

from recompute_records import LEAST_DECODED, LEAST_TPOT_MS, lines

Z = 1.959963984540054  # two-sided 95% of the normal distribution


class Answers:
    """Standing answers by (side, evaluation, problem), and the scores that belong to them."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.plans = {e["id"]: e for launch in plan["launches"] for e in launch.get("evals", [])}
        self.answers: dict[tuple[str, str, str], dict[str, Any]] = {}
        for line in lines(folder / "evals.jsonl"):
            place = line["record"]["side"], line["eval"], line["problem"]
            held = self.answers.get(place)
            if line["record"]["ok"] or held is None or not held["record"]["ok"]:
                self.answers[place] = line
        self.scores = {
            (s["key"], s["output_sha256"], s["measure"]): s for s in lines(folder / "scores.jsonl")
        }

    def answer(self, side: str, item: str, problem: str) -> dict[str, Any] | None:
        found = self.answers.get((side, item, problem))
        return found if found is not None and found["record"]["ok"] else None

    def score(self, answer: dict[str, Any] | None, measure: str) -> dict[str, Any] | None:
        if answer is None:
            return None
        return self.scores.get((answer["key"], answer["record"]["output_sha256"] or "", measure))


def evaluations(folder: Path, plan: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """The figures of summary.json's `evals`, in its order."""
    data = Answers(folder, plan)
    results = [result(data, e) for e in told["results"]]
    whole = {
        (e["eval"], e["measure"], e["side"])
        for e, found in zip(told["results"], results, strict=True)
        if found["passed"] is not None
    }
    maps = [
        cell
        for item, sides in order(told["results"])
        for side in sides
        if (item, data.plans[item]["measures"][0], side) in whole
        for cell in recall(data, item, side)
    ]
    found = {"results": results, "pairs": [pair(data, e) for e in told["pairs"]]}
    if "speed" in told:  # a summary of an earlier version tells neither
        found |= {"speed": [speed(data, e) for e in told["speed"]], "recall": maps}
    return found


def order(results: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for entry in results:
        sides = found.setdefault(entry["eval"], [])
        if entry["side"] not in sides:
            sides.append(entry["side"])
    return list(found.items())


def result(data: Answers, entry: dict[str, Any]) -> dict[str, Any]:
    item, side, measure = entry["eval"], entry["side"], entry["measure"]
    problems = data.plans[item]["problems"]
    answers = [a for p in problems if (a := data.answer(side, item, p)) is not None]
    scores = [s for a in answers if (s := data.score(a, measure)) is not None]
    n = len(problems)
    one = len({a["basis"] for a in answers}) == 1 and len({s["scorer"] for s in scores}) == 1
    passed = low = high = None
    if len(scores) == n and one:
        passed = [s["outcome"] for s in scores].count("pass")
        middle, half = wilson(passed, n)
        low, high = max(0.0, middle - half), min(1.0, middle + half)
    return {
        "problems": n,
        "answered": len(answers),
        "scored": len(scores),
        "passed": passed,
        "pass_1": None if passed is None else passed / n,
        "low": low,
        "high": high,
        "cut": sum(a["record"]["finish_reason"] == "length" for a in answers),
        "causes": dict(
            sorted(Counter(s["cause"] for s in scores if s["outcome"] == "fail").items())
        ),
    }


def wilson(passed: int, n: int) -> tuple[float, float]:
    """(middle, half width) of Wilson's interval, solved for by hand."""
    share, square = passed / n, Z * Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    inside = share * (1 - share) / n + square / (4 * n * n)
    return middle, Z * math.sqrt(inside) / (1 + square / n)


def pair(data: Answers, entry: dict[str, Any]) -> dict[str, Any]:
    item, measure = entry["eval"], entry["measure"]
    outcomes: Counter[tuple[str, str]] = Counter()
    changes: dict[str, list[dict[str, Any]]] = {"regressions": [], "gains": []}
    identical = 0
    for problem in data.plans[item]["problems"]:
        a = data.answer(entry["reference"], item, problem)
        b = data.answer(entry["side"], item, problem)
        left, right = data.score(a, measure), data.score(b, measure)
        if a is None or b is None or left is None or right is None:
            raise ValueError(f"{item}: {problem} has no answer or no score, yet it is compared")
        same = a["record"]["output_sha256"] == b["record"]["output_sha256"]
        identical += same
        outcomes[left["outcome"], right["outcome"]] += 1
        if left["outcome"] != right["outcome"]:
            lost = right if right["outcome"] == "fail" else left
            kind = "regressions" if lost is right else "gains"
            changes[kind].append({"problem": problem, "cause": lost["cause"], "identical": same})
    more, fewer = sorted((len(changes["regressions"]), len(changes["gains"])), reverse=True)
    tail = sum(math.comb(more + fewer, k) for k in range(more, more + fewer + 1))
    return {
        "problems": len(data.plans[item]["problems"]),
        "both_pass": outcomes["pass", "pass"],
        "both_fail": outcomes["fail", "fail"],
        **changes,
        "p_value": min(1.0, 2 * tail / 2 ** (more + fewer)),
        "identical": identical,
    }


def timed(record: dict[str, Any]) -> bool:
    t, n = record["timing"], record["usage"]["completion_tokens"]
    return bool(
        n and t["n_first"] is not None and t["tpot_ms"] is not None and t["t_last_s"] is not None
        and n - t["n_first"] >= LEAST_DECODED and t["tpot_ms"] >= LEAST_TPOT_MS
    )  # fmt: skip


def speed(data: Answers, entry: dict[str, Any]) -> dict[str, Any]:
    item = data.plans[entry["eval"]]
    if item["concurrency"] > 1:
        return {"compared": 0, "aggregate_decode": None, "aggregate_wall": None}
    rows = []
    for problem in item["problems"]:
        answers = [data.answer(s, item["id"], problem) for s in (entry["reference"], entry["side"])]
        both = [a["record"] for a in answers if a is not None]
        equal = len({r["usage"]["completion_tokens"] for r in both}) == 1
        if len(both) == 2 and equal and all(timed(r) for r in both):
            rows.append((problem, *both))
    seconds = [
        sum(r[k]["timing"]["t_last_s"] - r[k]["timing"]["t_first_s"] for r in rows) for k in (1, 2)
    ]
    tokens = [
        sum(r[k]["usage"]["completion_tokens"] - r[k]["timing"]["n_first"] for r in rows)
        for k in (1, 2)
    ]
    walls = [sum(r[k]["timing"]["t_last_s"] for r in rows) for k in (1, 2)]
    prompts = [
        {
            "problem": problem,
            "output_tokens": b["usage"]["completion_tokens"],
            "decode": a["timing"]["tpot_ms"] / b["timing"]["tpot_ms"],
            "wall": a["timing"]["t_last_s"] / b["timing"]["t_last_s"],
            "accept_length": accept([b]),
        }
        for problem, a, b in rows
    ]
    return {
        "compared": len(rows),
        "aggregate_decode": seconds[0] / tokens[0] / (seconds[1] / tokens[1]) if rows else None,
        "aggregate_wall": walls[0] / walls[1] if rows else None,
        "decode": reach([p["decode"] for p in prompts]),
        "wall": reach([p["wall"] for p in prompts]),
        "accept_length": accept([b for _, _, b in rows]),
        "prompts": prompts,
    }


def accept(records: list[dict[str, Any]]) -> float | None:
    counts = [s for r in records if (s := r["speculation"]) and s["V"] is not None]
    counts = [s for s in counts if s["C"] is not None]
    steps = sum(s["V"] for s in counts)
    return 1 + sum(s["C"] for s in counts) / steps if steps else None


def reach(ratios: list[float]) -> dict[str, float] | None:
    if not ratios:
        return None
    mean = math.prod(r ** (1 / len(ratios)) for r in ratios)
    return {"mean": mean, "low": min(ratios), "high": max(ratios)}


def recall(data: Answers, item: str, side: str) -> list[dict[str, Any]]:
    plan = data.plans[item]
    stated = bool(plan["options"].get("depths")) or plan["options"].get("count") == 1
    asked: Counter[tuple[int, float]] = Counter()
    found: Counter[tuple[int, float]] = Counter()
    for problem in plan["problems"]:
        score = data.score(data.answer(side, item, problem), plan["measures"][0])
        if score is None or "needles" not in score["values"]:
            continue
        if problem.startswith("fresh/") or not problem.endswith("/t0"):
            continue
        for needle in score["values"]["needles"]:
            depth = needle["asked_depth"] if stated else round(needle["asked_depth"], 1)
            asked[score["values"]["tokens"], depth] += 1
            found[score["values"]["tokens"], depth] += needle["found"]
    return [
        {
            "eval": item,
            "side": side,
            "tokens": tokens,
            "depth": depth,
            "asked": asked[tokens, depth],
            "found": found[tokens, depth],
        }
        for tokens, depth in sorted(asked)
    ]
