"""Tensor parallelism: every rank committed the same tokens, and every rank left a log.

Ranks that part ways go on without an error for a while: rank 0's answers look right, and what the
others hold behind them is another text. Two witnesses: what the engine says of each request
(`rank_token_parity`), and each rank's own lines in the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qualify.checks.enginelog import launches_of, lines_of, log_path
from qualify.checks.select import places, plural
from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.planning.probes.facts import facts_of
from qualify.records.run import Run
from qualify.records.schema import Record

_SHOWN = 10
# Launch arguments that say how many ranks share the model, by engine.
_SIZES = ("tp-size", "tensor-parallel-size", "tp-world", "tp")
# How engines mark a line as a rank's: SGLang and the bundled engine, PocketLLM, vLLM.
_RANK = re.compile(
    r"^\[[^\]]* TP(?P<a>\d+)[^\]]*\]|^\[rank (?P<b>\d+)\]|\(\w*Worker_?(?:TP| rank=)(?P<c>\d+)\b"
)
# What the bundled engine's ranks say of each request that ended.
_TOKENS = re.compile(r"Rank tokens, rid: (?P<rid>.*), #token: \d+, sha256: (?P<digest>\w+)")


@dataclass
class _Logs:
    """ranks: those with a line of their own; digests: (launch, request) -> rank -> digest."""

    ranks: dict[str, set[int]] = field(default_factory=dict)
    digests: dict[tuple[str, str], dict[int, set[str]]] = field(default_factory=dict)

    def differing(self) -> list[tuple[str, str]]:
        return [key for key, ranks in self.digests.items() if len(set().union(*ranks.values())) > 1]

    def compared(self) -> int:
        return sum(len(ranks) > 1 for ranks in self.digests.values())


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict for each side that several ranks serve, or that reports on its ranks."""
    launches = launches_of(run)
    records: dict[str, list[Record]] = {}
    for place in places(run):
        records.setdefault(place.side, []).extend(r for r in place.records if r.ok)
    sides = dict.fromkeys(launch.side.name for launch in run.plan.launches)
    verdicts = []
    for side in sides:
        planned = _planned(run, side)
        mine = records.get(side, [])
        said = [r for r in mine if _said(r) is not None]
        if (planned is not None and planned > 1) or said:
            logs = _read(run, launches.get(side, []))
            verdicts.append(_judge(side, planned, mine, said, logs, settings))
        elif settings.named("ranks"):
            text = "One rank serves this side: there is nobody to agree with."
            verdicts.append(Verdict("ranks", side, "not-run", text, {"side": side}, demanded=False))
    return verdicts


def _judge(
    side: str,
    planned: int | None,
    records: list[Record],
    said: list[Record],
    logs: _Logs,
    settings: Settings,
) -> Verdict:
    apart = [r for r in said if _said(r) is False]
    differing = logs.differing()
    silent = {
        launch: missing
        for launch, seen in logs.ranks.items()
        if seen and planned and (missing := sorted(set(range(planned)) - seen))
    }
    evidence: dict[str, Any] = {
        "side": side,
        "ranks_planned": planned,
        "requests": len(records),
        "requests_that_say": len(said),
        "apart": [{"cell": r.cell, "prompt": r.prompt_id} for r in apart[:_SHOWN]],
        "ranks_in_log": {launch: sorted(seen) for launch, seen in logs.ranks.items()},
        "requests_compared_in_log": logs.compared(),
        "differing_in_log": [{"launch": at, "request": rid} for at, rid in differing[:_SHOWN]],
    }

    def verdict(outcome: Outcome, text: str) -> Verdict:
        demanded = settings.named("ranks") or outcome != "not-run"
        return Verdict("ranks", side, outcome, text, evidence, demanded=demanded)

    if apart:
        first = apart[0]
        text = f"The ranks committed different tokens in {plural(len(apart), 'request')}, first "
        return verdict("fail", f"{text}{first.prompt_id} in {first.cell}.")
    if differing:
        launch, rid = differing[0]
        text = f"By their logs the ranks committed different tokens in {len(differing)} of "
        text += f"{plural(len(logs.digests), 'request')}, first {rid} in {launch}."
        return verdict("fail", text)
    if silent:
        launch, missing = next(iter(silent.items()))
        names = ", ".join(map(str, missing))
        text = f"Of {planned} ranks, rank {names} left no line in the log of {launch}."
        return verdict("fail", text)
    if not said and not logs.compared():
        text = f"{planned} ranks serve this side, and the engine does not say whether they agree."
        return verdict("not-run", text)
    if len(said) < len(records) and not logs.compared():
        text = f"{plural(len(records) - len(said), 'request')} of {len(records)} do not say "
        return verdict("inconclusive", f"{text}whether the ranks agreed; the others do.")
    witnesses = [
        *([f"{plural(len(said), 'request')} say so"] if said else []),
        *(
            [f"each rank logged the same tokens of {plural(n, 'request')}"]
            if (n := logs.compared())
            else []
        ),
    ]
    many = f"{planned} ranks" if planned else "the ranks"
    return verdict("pass", f"All of {many} committed the same tokens: {' and '.join(witnesses)}.")


def _planned(run: Run, side: str) -> int | None:
    """How many ranks the launch arguments ask for; None where none of them says."""
    launch = next(item for item in run.plan.launches if item.side.name == side)
    args = facts_of(launch, run.plan.engine).args
    for name in _SIZES:
        value = args.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _said(record: Record) -> bool | None:
    meta = record.extras.get("meta_info")
    said = meta.get("rank_token_parity") if isinstance(meta, Mapping) else None
    return said if isinstance(said, bool) else None


def _read(run: Run, launches: list[str]) -> _Logs:
    logs = _Logs()
    for launch in launches:
        seen = logs.ranks.setdefault(launch, set())
        for line in lines_of(log_path(run, launch)):
            found = _RANK.search(line.text)
            if found is None:
                continue
            rank = int(next(group for group in found.groups() if group is not None))
            seen.add(rank)
            tokens = _TOKENS.search(line.text)
            if tokens is not None:
                by_rank = logs.digests.setdefault((launch, tokens["rid"]), {})
                by_rank.setdefault(rank, set()).add(tokens["digest"])
    return logs
