"""Two sides compared, paired by prompt inside each round, in log space."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qualify.analysis.break_even import BreakEven, break_even
from qualify.analysis.matched import (
    by_round,
    cycle_log,
    decode_log,
    estimate,
    key_of,
    steps_of_both,
    tokens_log,
    unfit,
    wall_log,
    wall_same_prefill_log,
)
from qualify.analysis.outcomes import Finding, holm, judge
from qualify.analysis.stats import mean
from qualify.analysis.timing import prefill_share, window_s
from qualify.checks.pairing import Match, baseline_repeats, cells_of, matches, planned_pairs
from qualify.checks.pool import pool
from qualify.checks.protocol import unlike
from qualify.checks.select import Place, completion_tokens, places
from qualify.records.run import Run


@dataclass(frozen=True)
class PairResult:
    """How one side decodes against its reference in one cell.

    Every ratio is "times as fast as the reference": above 1 the side is faster. decode is
    reference TPOT / side TPOT, wall the same for the time to the last token as measured, and
    wall_same_prefill with the reference's TTFT on both sides: a TTFT difference is not
    credited to a mode (rule 10). prefill_share: of the reference's time to the last token,
    over the compared prompts; it is why wall gains less than decode. throughput_ratio is
    that of aggregate rates.
    cycle_factor * tokens_factor = decode over the same prompts (None where steps are not
    known): the first is cheaper steps, the second more tokens in each. proposed is P of the
    side over the compared prompts; 0: it decoded plainly, and a gain is no merit of it.
    left_out says how many matched prompts were not compared, and why.
    """

    side: str
    reference: str
    cell: str
    workload: str
    tokens: int
    concurrency: int
    prompts: int
    rounds: int
    left_out: dict[str, int]
    decode: Finding | None
    wall: Finding | None
    wall_same_prefill: float | None
    prefill_share: float | None
    throughput_ratio: float | None
    cycle_factor: float | None
    tokens_factor: float | None
    break_even: BreakEven | None
    proposed: int | None
    refused: str | None
    round_ratios: dict[str, float]


def all_pairs(run: Run, margin: float) -> list[PairResult]:
    """Every pair of the campaign in every cell that both sides have, in plan order. `parity:
    all-pairs` asks for more bytes to be compared, not for more claims of speed.

    margin: the relative difference under which two sides count as tied.
    """
    results = []
    for side, reference in planned_pairs(run.plan):
        ours, theirs = cells_of(run, side), cells_of(run, reference)
        for cell in ours:
            if cell in theirs:
                results.append(_pair(run, (side, reference), ours[cell], theirs[cell], margin))
    return results


def corrected(pairs: Sequence[PairResult]) -> list[PairResult]:
    """The pairs of one report with Holm's correction over all of them, once for decode and
    once for the whole answer: each is a family of claims of its own."""
    decode, wall = holm([p.decode for p in pairs]), holm([p.wall for p in pairs])
    return [replace(p, decode=d, wall=w) for p, d, w in zip(pairs, decode, wall, strict=True)]


def self_pairs(run: Run, margin: float) -> list[PairResult]:
    """The baseline's first launch against its later ones: what relaunching alone does."""
    baseline = run.plan.baseline
    results: list[PairResult] = []
    for place in places(run):
        if place.side != baseline or any(place.cell.id == r.cell for r in results):
            continue
        found = baseline_repeats(run, place.cell.id)
        if found:
            swapped = [Match(m.b, m.a, m.round) for m in found]
            name = f"{baseline} relaunched", baseline
            results.append(_result(name, place, swapped, margin, None, (False, False)))
    return results


def _pair(
    run: Run, names: tuple[str, str], ours: list[Place], theirs: list[Place], margin: float
) -> PairResult:
    a = [r for p in ours for r in p.counted]
    b = [r for p in theirs for r in p.counted]
    differing = unlike(run, a, b) if a and b else {}
    found = list(matches(ours, theirs))
    refused = f"not like with like: {', '.join(differing)}" if differing else None
    speculative = ours[0].speculative, theirs[0].speculative
    throughput = _throughput_ratio(ours, theirs) if not differing else None
    result = _result(names, ours[0], [] if refused else found, margin, refused, speculative)
    return replace(result, throughput_ratio=throughput)


def _result(
    names: tuple[str, str],
    place: Place,
    found: list[Match],
    margin: float,
    refused: str | None,
    speculative: tuple[bool, bool],
) -> PairResult:
    left_out: dict[str, int] = defaultdict(int)
    usable = []
    for match in found:
        why = unfit(match)
        if why is None:
            usable.append(match)
        else:
            left_out[why] += 1
    decode = by_round(usable, decode_log)
    both = {(m.round, key_of(m)): pair for m in usable if (pair := steps_of_both(m, speculative))}
    whole = len(both) == len(usable)
    cycle = by_round(usable, lambda m: cycle_log(both[m.round, key_of(m)])) if whole else {}
    tokens = by_round(usable, lambda m: tokens_log(both[m.round, key_of(m)])) if whole else {}
    finding = judge(decode, margin)
    return PairResult(
        side=names[0],
        reference=names[1],
        cell=place.cell.id,
        workload=place.cell.workload,
        tokens=place.cell.prompts.tokens,
        concurrency=place.cell.concurrency,
        prompts=len({key_of(m) for m in usable}),
        rounds=len(decode),
        left_out=dict(sorted(left_out.items())),
        decode=finding,
        wall=judge(by_round(usable, wall_log), margin),
        wall_same_prefill=estimate(by_round(usable, wall_same_prefill_log)),
        prefill_share=prefill_share([m.b for m in usable]),
        throughput_ratio=None,
        cycle_factor=estimate(cycle),
        tokens_factor=estimate(tokens),
        break_even=break_even(usable, list(both.values())) if whole else None,
        proposed=pool(m.a for m in usable).P,
        refused=refused,
        round_ratios={
            str(r): math.exp(m)
            for r, v in decode.items()
            if (m := mean(list(v.values()))) is not None
        },
    )


def _throughput_ratio(ours: list[Place], theirs: list[Place]) -> float | None:
    """Geometric mean over rounds of the ratio of aggregate rates, where both are known."""
    other = {p.launch.round: rate for p in theirs if (rate := _rate(p)) is not None}
    logs = [
        math.log(rate / other[p.launch.round])
        for p in ours
        if (rate := _rate(p)) is not None and p.launch.round in other
    ]
    centre = mean(logs)
    return None if centre is None else math.exp(centre)


def _rate(place: Place) -> float | None:
    """Tokens per second over the window; None unless every request of the cell counted."""
    window = window_s(place.records)
    if not window or len(place.counted) != len(place.records):
        return None
    return sum(completion_tokens(r) or 0 for r in place.counted) / window
