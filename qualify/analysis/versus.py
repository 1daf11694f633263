"""Two runs compared, cell by cell: only like with like, and the rest with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from qualify.analysis.outcomes import LEAST_ROUNDS, Finding, holm, judge, judge_apart
from qualify.analysis.stats import mean
from qualify.analysis.timing import window_s
from qualify.checks.implausible import flaw
from qualify.checks.protocol import PROMPTING, SAMPLING
from qualify.checks.select import Place, completion_tokens, launch_record, measuring, places
from qualify.records.run import Run
from qualify.records.schema import Record

Measure = Callable[[Record], float | None]
MEASURES = ("decode", "ttft", "wall", "throughput", "accept_length")


@dataclass(frozen=True)
class LikeCell:
    """One side in one cell that both runs measured on the same prompts in the same way.

    Every ratio is "times as good as before": above 1 the later run is faster (decode, ttft,
    wall), has more throughput or a longer accept length. Launches of two runs share no
    rounds: from 3 launches in each a Welch interval over launches, with fewer one over
    prompts, within these launches only. prompts: how many entered decode.
    """

    side: str
    cell: str
    prompts: int
    launches_before: int
    launches_after: int
    decode: Finding | None
    ttft: Finding | None
    wall: Finding | None
    throughput: Finding | None
    accept_length: Finding | None


@dataclass(frozen=True)
class Unlike:
    """A side in a cell that cannot be compared, and why."""

    side: str
    cell: str
    why: str


@dataclass(frozen=True)
class Versus:
    before: str
    after: str
    margin: float
    cells: tuple[LikeCell, ...]
    unlike: tuple[Unlike, ...]


def versus(before: Run, after: Run, margin: float) -> Versus:
    """Outcomes are corrected (Holm) over all cells, once for each measure."""
    theirs, ours = _sides(before), _sides(after)
    cells: list[LikeCell] = []
    unlike: list[Unlike] = []
    for key in dict.fromkeys((*theirs, *ours)):
        why = _why_not(before, after, theirs.get(key), ours.get(key))
        if why is None:
            cells.append(_cell(key, theirs[key], ours[key], margin))
        else:
            unlike.append(Unlike(*key, why))
    return Versus(before.id, after.id, margin, tuple(_corrected(cells)), tuple(unlike))


def _corrected(cells: Sequence[LikeCell]) -> list[LikeCell]:
    decode, ttft, wall, throughput, length = (
        holm([getattr(c, name) for c in cells]) for name in MEASURES
    )
    return [
        replace(
            c,
            decode=decode[i],
            ttft=ttft[i],
            wall=wall[i],
            throughput=throughput[i],
            accept_length=length[i],
        )
        for i, c in enumerate(cells)
    ]


def _sides(run: Run) -> dict[tuple[str, str], list[Place]]:
    found: dict[tuple[str, str], list[Place]] = {}
    for place in measuring(places(run)):
        found.setdefault((place.side, place.cell.id), []).append(place)
    return found


def _why_not(
    before: Run, after: Run, theirs: list[Place] | None, ours: list[Place] | None
) -> str | None:
    if theirs is None or ours is None:
        return f"only {after.id if theirs is None else before.id} plans it"
    a = [r for p in theirs for r in p.counted]
    b = [r for p in ours for r in p.counted]
    if not a or not b:
        return f"{before.id if not a else after.id} has no request of it that counts"
    one, other = protocol(before, a), protocol(after, b)
    differing = [name for name in one if one[name] != other[name]]
    if differing:
        name = differing[0]
        more = f" (and {', '.join(differing[1:])})" if len(differing) > 1 else ""
        return f"{name} differs: {_told(one[name])} then, {_told(other[name])} now{more}"
    shared = {r.prompt_sha256 for r in a} & {r.prompt_sha256 for r in b}
    if not shared:
        return "the prompts differ: no hash is in both runs"
    return None


def protocol(run: Run, records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """What must be the same: shape, concurrency, sampling, cache policy, instrumentation."""
    entries = [launch_record(run, launch) for launch in dict.fromkeys(r.launch for r in records)]
    found = {
        "prompt tokens": {str(r.tokens) for r in records},
        "concurrency": {str(r.concurrency) for r in records},
        "cache policy": {r.cache.policy for r in records},
        "instrumentation": {
            repr(e.origin.get("instrumentation") or None) if e is not None else "None"
            for e in entries
        },
        **{n: {repr(r.request.get(n)) for r in records} for n in SAMPLING + PROMPTING},
    }
    return {name: tuple(sorted(values)) for name, values in found.items()}


def _told(values: tuple[str, ...]) -> str:
    return " or ".join(values)


def _cell(key: tuple[str, str], theirs: list[Place], ours: list[Place], margin: float) -> LikeCell:
    lengths_a, lengths_b = _lengths(theirs), _lengths(ours)
    same = {k for k in lengths_a if lengths_a[k] == lengths_b.get(k) and len(lengths_a[k]) == 1}

    def judged(measure: Measure, keys: set[str] | None, sign: float = 1.0) -> Finding | None:
        return _judge(_levels(theirs, measure, keys), _levels(ours, measure, keys), margin, sign)

    def tpot(r: Record) -> float | None:
        return r.timing.tpot_ms if flaw(r) is None else None

    return LikeCell(
        side=key[0],
        cell=key[1],
        prompts=len(same),
        launches_before=sum(bool(p.counted) for p in theirs),
        launches_after=sum(bool(p.counted) for p in ours),
        decode=judged(tpot, same),
        ttft=judged(lambda r: r.timing.ttft_s, None),
        wall=judged(lambda r: r.timing.t_last_s, same),
        throughput=judge_apart(_rates(theirs, -1), _rates(ours, -1), margin),
        accept_length=judged(_accept_length, None, -1.0),
    )


def _lengths(found: Sequence[Place]) -> dict[str, set[int | None]]:
    """Prompt hash -> output lengths seen: unequal ones are not compared (rule 10)."""
    lengths: dict[str, set[int | None]] = {}
    for place in found:
        for r in place.counted:
            lengths.setdefault(_prompt(r), set()).add(completion_tokens(r))
    return lengths


def _prompt(record: Record) -> str:
    return f"{record.prompt_sha256}/{record.turn}"


def _levels(
    found: Sequence[Place], measure: Measure, keys: set[str] | None
) -> list[dict[str, float]]:
    """For each launch: prompt -> log of the measure."""
    launches = [
        {
            _prompt(r): math.log(value)
            for r in place.counted
            if (keys is None or _prompt(r) in keys) and (value := measure(r)) and value > 0
        }
        for place in found
    ]
    return [launch for launch in launches if launch]


def _judge(
    before: list[dict[str, float]], after: list[dict[str, float]], margin: float, sign: float
) -> Finding | None:
    """Over the prompts that every launch measured; else over those that both runs did."""
    if not before or not after:
        return None
    shared = set.intersection(*(set(v) for v in (*before, *after)))
    if shared and min(len(before), len(after)) >= LEAST_ROUNDS:
        a, b = ([sign * _mean(v, shared) for v in side] for side in (before, after))
        return judge_apart(a, b, margin)
    a_by, b_by = _by_prompt(before), _by_prompt(after)
    logs = {(k, 0): sign * (a_by[k] - b_by[k]) for k in a_by if k in b_by}
    return judge({1: logs}, margin) if logs else None


def _mean(values: dict[str, float], keys: set[str]) -> float:
    return math.fsum(values[k] for k in keys) / len(keys)


def _by_prompt(launches: Sequence[dict[str, float]]) -> dict[str, float]:
    keys = dict.fromkeys(k for launch in launches for k in launch)
    found = {k: mean([launch[k] for launch in launches if k in launch]) for k in keys}
    return {k: v for k, v in found.items() if v is not None}


def _accept_length(record: Record) -> float | None:
    spec = record.speculation
    if spec is None or not spec.V or spec.C is None:
        return None
    return 1 + spec.C / spec.V


def _rates(found: Sequence[Place], sign: float) -> list[float]:
    """Log of tokens per second of each launch whose requests all counted."""
    rates = []
    for place in found:
        window = window_s(place.records)
        tokens = sum(completion_tokens(r) or 0 for r in place.counted)
        if window and tokens and len(place.counted) == len(place.records):
            rates.append(sign * math.log(tokens / window))
    return rates
