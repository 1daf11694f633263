#!/usr/bin/env python3
"""Compute a run's figures again from its raw records, and compare them with summary.json.

    python scripts/recompute.py reports/quickstart-20260101-120000

Reads plan.json and the .jsonl files. Standard library only, and not
one line of qualify: a second, plainer way to the same numbers. Exit code 0: all figures agree;
1: some differ (each is printed); 2: a file is missing or unreadable.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from recompute_cells import figures
from recompute_evals import evaluations
from recompute_math import t_point
from recompute_more import crossing, launch_variation, more_figures
from recompute_pairs import correct, pair_figures, self_figures
from recompute_records import Data

TOLERANCE = 1e-6  # relative; summary.json keeps 9 significant digits
DEFAULT_MARGIN = 0.03


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
    gates = data.plan["campaign"].get("gates") or {}
    sides = []
    for entry in told["sides"]:
        launches = [
            launch
            for (_, cell), launch in shape.items()
            if cell == entry["cell"] and launch["side"]["name"] == entry["side"]
            and launch["purpose"] == "measure"
        ]  # fmt: skip
        requests = [data.requests.get((x["id"], entry["cell"]), []) for x in launches]
        plain = figures(requests, data.drafts(launches[0]["side"]["mode"]))
        sides.append({**plain, **more_figures(requests, entry["concurrency"], gates)})
    own = [self_figures(data, e["cell"], DEFAULT_MARGIN) for e in told["self_pairs"]]
    names = [(e["side"], e["reference"], e["cell"]) for e in told["pairs"]]
    first = [pair_figures(data, *name, DEFAULT_MARGIN) for name in names]
    margin = margin_of(data, own, list(zip(names, first, strict=True)))
    pairs = [pair_figures(data, *name, margin) for name in names]
    correct(pairs, margin)
    planned = [(launch["id"], cell["id"]) for launch in data.launches() for cell in launch["cells"]]
    return {
        "margin": {"value": margin},
        "cells": cells,
        "sides": sides,
        "self_pairs": own,
        "pairs": pairs,
        "launch_variation": [
            launch_variation(data, e["side"], e["cell"]) for e in told["launch_variation"]
        ],
        "crossovers": crossings(told, names, pairs),
        "places": len(planned),
        "evals": evaluations(data.folder, data.plan, told["evals"]),
    }


def crossings(
    told: dict[str, Any], names: list[tuple[str, str, str]], pairs: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    decode = {n: p["decode"] for n, p in zip(names, pairs, strict=True) if p["decode"]}
    return [
        crossing(
            sorted(
                ((p["tokens"], decode[e["side"], e["reference"], p["cell"]]) for p in e["points"]),
                key=lambda point: point[0],
            )
        )
        for e in told["crossovers"]
    ]


def margin_of(
    data: Data, own: list[dict[str, Any]], pairs: list[tuple[tuple[str, ...], dict[str, Any]]]
) -> float:
    """What equal work differed by: see docs/summary.md, "Pairs"."""
    told = {x["side"]["name"]: x["side"] for x in data.launches()}
    same = {
        name: [side[k] for k in ("mode", "profile", "args", "env")] for name, side in told.items()
    }
    alike = [e for (a, b, _), e in pairs if a != b and same[a] == same[b] and e["decode"]]
    rounds = len({x["round"] for x in data.launches() if x["purpose"] == "measure"})
    if rounds >= 3:
        enough = [e for e in alike if len(e["round_ratios"]) >= 3]
        if not enough:
            return DEFAULT_MARGIN
        squares = [math.log(r) ** 2 for e in enough for r in e["round_ratios"].values()]
        least = min(len(e["round_ratios"]) for e in enough)
        reach = t_point(least) * math.sqrt(sum(squares) / len(squares) / least)
        return max(math.expm1(reach), 0.01)
    seen = [abs(math.log(e["decode"]["ratio"])) for e in own if e["decode"]]
    seen += [abs(math.log(e["decode"]["ratio"])) for e in alike]
    seen += [math.log(e["decode"]["ratio"]) for _, e in pairs if e["decode"] and e["proposed"] == 0]
    return max([DEFAULT_MARGIN, *(math.expm1(x) for x in seen)])


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
