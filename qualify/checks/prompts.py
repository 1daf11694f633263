"""The same prompts on every side, different ones within a cell, none used to warm up."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from qualify.checks.select import by_side_and_cell, plan_launch_id, plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each cell id, over all sides and launches (rules 6 and 7)."""
    by_cell: dict[str, list[Any]] = defaultdict(list)
    for (_side, cell), group in by_side_and_cell(run).items():
        by_cell[cell].extend(group)
    warm: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in run.records:
        if record.phase == "warmup":
            warm[plan_launch_id(record.launch), record.cell].add(record.prompt_sha256)
    verdicts = []
    for cell, group in by_cell.items():
        hashes: dict[str, set[str]] = defaultdict(set)
        repeated: list[str] = []
        reused: list[str] = []
        sent = 0
        for place in group:
            sent += len(place.records)
            seen = Counter(r.prompt_sha256 for r in place.records)
            repeated += [f"{place.launch.id}: {k[:12]}" for k, n in seen.items() if n > 1]
            if place.cell.cache == "cold":
                shared = warm[place.launch.id, cell] & set(seen)
                reused += [f"{place.launch.id}: {k[:12]}" for k in sorted(shared)]
            for record in place.records:
                hashes[record.prompt_id].add(record.prompt_sha256)
        if not sent:
            continue
        differing = sorted(k for k, v in hashes.items() if len(v) > 1)
        evidence = {
            "cell": cell,
            "prompts": len(hashes),
            "requests": sent,
            "differing_between_launches": differing,
            "repeated_within_a_launch": repeated,
            "reused_from_warmup": reused,
        }
        if differing or repeated or reused:
            faults = []
            if differing:
                faults.append(f"{plural(len(differing), 'prompt')} not the same in every launch")
            if repeated:
                faults.append(f"{plural(len(repeated), 'prompt')} sent twice in one launch")
            if reused:
                faults.append(f"{plural(len(reused), 'measured prompt')} already used to warm up")
            sentence = f"{'; '.join(faults)}.".capitalize()
            verdicts.append(Verdict("prompts", cell, "fail", sentence, evidence))
        else:
            sentence = (
                f"{plural(len(hashes), 'distinct prompt')}, the same in every launch; "
                f"none was used to warm up."
            )
            verdicts.append(Verdict("prompts", cell, "pass", sentence, evidence))
    return verdicts
