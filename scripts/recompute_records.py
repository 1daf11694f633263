"""The measured requests that stand, read from a run's raw files. Standard library only."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

LEAST_TPOT_MS, LEAST_DECODED = 0.02, 3


def lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text("utf-8").split("\n") if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut by a kill; the run's own reader names it
        if isinstance(entry, dict):
            found.append(entry)
    return found


class Data:
    """The measured requests of every planned cell, in prompt order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
