"""Only like with like: one cache protocol and one sampling on both sides of a pair."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qualify.checks.pairing import cells_of, planned_pairs
from qualify.checks.select import launch_record
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.schema import Record

# Every field that decides which tokens come out; part of the comparison key.
SAMPLING = ("temperature", "top_p", "top_k", "seed", "ignore_eos", "output_tokens", "until")
PROMPTING = ("template_sha256", "thinking")


def cache_protocol(record: Record) -> tuple[str, str]:
    return record.cache.policy, record.cache.method or "none"


def comparison_key(run: Run, record: Record) -> dict[str, Any]:
    """What must be equal before two records may stand in one comparison."""
    entry = launch_record(run, record.launch)
    return {
        "cache": " by ".join(cache_protocol(record)),
        "instrumentation": entry.origin.get("instrumentation") or None if entry else None,
        **{k: record.request.get(k) for k in SAMPLING + PROMPTING},
    }


def unlike(run: Run, a: Iterable[Record], b: Iterable[Record]) -> dict[str, list[str]]:
    """The key's fields in which two sets of records differ, with the values seen."""
    keys = [comparison_key(run, r) for r in (*a, *b)]
    found = {}
    for name in keys[0] if keys else ():
        values = sorted({repr(k[name]) for k in keys})
        if len(values) > 1:
            found[name] = values
    return found


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each pair, over all of its cells."""
    verdicts = []
    for side, reference in planned_pairs(run.plan, settings):
        ours, theirs = cells_of(run, side), cells_of(run, reference)
        shared = [c for c in ours if c in theirs]
        differing = {}
        compared = 0
        for cell in shared:
            a = [r for p in ours[cell] for r in p.counted]
            b = [r for p in theirs[cell] for r in p.counted]
            if not a or not b:
                continue
            compared += 1
            if found := unlike(run, a, b):
                differing[cell] = found
        if not compared:
            continue
        name = f"{side} against {reference}"
        evidence = {"sides": [side, reference], "cells": compared, "differing": differing}
        if differing:
            cell, fields = next(iter(differing.items()))
            text = (
                f"Not comparable in {len(differing)} of {compared} cells: in {cell} they "
                f"differ in {', '.join(fields)}. The comparison is refused there."
            )
            verdicts.append(Verdict("protocol", name, "fail", text, evidence))
        else:
            text = (
                f"Cache protocol, sampling, template and instrumentation are the same in all "
                f"{compared} compared cells."
            )
            verdicts.append(Verdict("protocol", name, "pass", text, evidence))
    return verdicts
