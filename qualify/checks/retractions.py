"""No request was sent back to the queue because the pool was full (rule 5's other half).

A retracted request is computed twice: its times are those of a server that was asked for more
than it holds, and its bytes may differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from qualify.checks.enginelog import BATCH, launches_of, lines_of, log_path
from qualify.checks.select import Place, places, plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.engines.counters import RETRACTIONS
from qualify.records.run import Run

# SGLang: "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 8192"
_RETRACT = re.compile(r"Retract requests\. .*?#retracted_reqs: (?P<n>\d+)")


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict a side, from three witnesses: the requests themselves, the server's counter
    over each cell, the log. Any of them convicts; one that reports is enough to acquit."""
    sides: dict[str, list[Place]] = {}
    for place in places(run):
        if place.records:
            sides.setdefault(place.side, []).append(place)
    logs = launches_of(run)
    return [_judge(run, side, mine, logs.get(side, []), settings) for side, mine in sides.items()]


def _judge(
    run: Run, side: str, mine: list[Place], launches: list[str], settings: Settings
) -> Verdict:
    named = [(r.cell, r.prompt_id, n) for p in mine for r in p.records if (n := told_by(r.extras))]
    asked = [r for p in mine for r in p.records if r.ok]
    silent = sum(told_by(r.extras) is None for r in asked)
    counted = {f"{p.launch.id} {p.cell.id}": n for p in mine if (n := _counter(p)) is not None}
    lines, worded = _log(run, launches)
    evidence: dict[str, Any] = {
        "side": side,
        "requests": len(asked),
        "requests_that_do_not_say": silent,
        "retracted": [{"cell": c, "prompt": p, "times": n} for c, p, n in named[:20]],
        "counter_by_cell": counted,
        "log_lines": lines[:20],
        "log_would_say": worded,
    }
    moved = {cell: n for cell, n in counted.items() if n}
    if named:
        cell, prompt, times = named[0]
        text = f"{plural(len(named), 'request')} retracted, first {prompt} in {cell} ({times}x)."
        return Verdict("retractions", side, "fail", text, evidence)
    if moved:
        cell, times = next(iter(moved.items()))
        text = f"The server counts {plural(times, 'retraction')} in {cell}: its pool was full."
        return Verdict("retractions", side, "fail", text, evidence)
    if lines:
        text = f"The log has {plural(len(lines), 'line')} of retraction: {lines[0]['text']}"
        return Verdict("retractions", side, "fail", text, evidence)
    witnesses = [
        *(["every request says 0"] if asked and not silent else []),
        *(["the server's counter did not move"] if len(counted) == len(mine) else []),
        *(["the log has no such line"] if worded else []),
    ]
    if witnesses:
        text = f"Nothing was retracted: {', '.join(witnesses)}."
        return Verdict("retractions", side, "pass", text, evidence)
    text = "The engine does not say whether a request was retracted; unknown is not 0."
    demanded = settings.named("retractions")
    return Verdict("retractions", side, "not-run", text, evidence, demanded=demanded)


def told_by(extras: Mapping[str, Any]) -> int | None:
    """What an answer itself says of how often it was retracted; None where it is silent."""
    meta = extras.get("meta_info")
    said = meta.get("num_retractions") if isinstance(meta, Mapping) else None
    return said if isinstance(said, int) and not isinstance(said, bool) else None


def _counter(place: Place) -> int | None:
    """How far the server's counter moved over the cell; None where it was not reported."""
    stored = place.end.evidence.get("counters") if place.end else None
    values = stored.get("values") if isinstance(stored, Mapping) else None
    if not isinstance(values, Mapping) or (stored or {}).get("problem") is not None:
        return None
    moved = values.get(RETRACTIONS)
    return round(moved) if isinstance(moved, int | float) else None


def _log(run: Run, launches: list[str]) -> tuple[list[dict[str, Any]], bool]:
    """Lines of retraction, and whether every log is of the kind that would have such lines."""
    found: list[dict[str, Any]] = []
    worded = bool(launches)
    for launch in launches:
        batches = 0
        for line in lines_of(log_path(run, launch)):
            batches += BATCH.search(line.text) is not None
            match = _RETRACT.search(line.text)
            if match is not None:
                found.append({"launch": launch, "line": line.number, "text": line.text.strip()})
        worded = worded and batches > 0
    return found, worded
