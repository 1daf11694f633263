"""Two sides compared, paired by prompt inside each round, in log space."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from qualify.analysis.outcomes import Finding, LogRatios, holm, judge, round_means
from qualify.analysis.speculation import (
    Steps,
    break_even_accept_length,
    break_even_tokens_per_step,
    steps_of,
)
from qualify.analysis.stats import mean
from qualify.analysis.timing import prefill_share, window_s
from qualify.checks.implausible import flaw
from qualify.checks.pairing import Match, baseline_repeats, cells_of, matches, planned_pairs
from qualify.checks.pool import pool
from qualify.checks.protocol import unlike
from qualify.checks.select import Place, completion_tokens, places
from qualify.checks.settings import Settings
from qualify.records.run import Run


@dataclass(frozen=True)
class BreakEven:
    """What the side must commit to tie with the reference at its own cycle time, beside
    what it did commit. Accept length counts the bonus token; None without verify steps."""

    needed_tokens_per_step: float
    reached_tokens_per_step: float
    needed_accept_length: float | None
    reached_accept_length: float | None
    possible_accept_length: float | None  # 1 + P/V: every proposed draft right


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
    """Every planned pair in every cell that both sides have, in plan order.

    margin: the relative difference under which two sides count as tied.
    """
    results = []
    for side, reference in planned_pairs(run.plan, Settings(run.plan.checks)):
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
        why = _unfit(match)
        if why is None:
            usable.append(match)
        else:
            left_out[why] += 1
    decode = _by_round(usable, _decode)
    both = {(m.round, _key(m)): pair for m in usable if (pair := _steps(m, speculative))}
    whole = len(both) == len(usable)
    cycle = _by_round(usable, lambda m: _cycle(both[m.round, _key(m)])) if whole else {}
    tokens = _by_round(usable, lambda m: _tokens(both[m.round, _key(m)])) if whole else {}
    finding = judge(decode, margin)
    return PairResult(
        side=names[0],
        reference=names[1],
        cell=place.cell.id,
        workload=place.cell.workload,
        tokens=place.cell.prompts.tokens,
        concurrency=place.cell.concurrency,
        prompts=len({_key(m) for m in usable}),
        rounds=len(decode),
        left_out=dict(sorted(left_out.items())),
        decode=finding,
        wall=judge(_by_round(usable, _wall), margin),
        wall_same_prefill=_estimate(_by_round(usable, _wall_same_prefill)),
        prefill_share=prefill_share([m.b for m in usable]),
        throughput_ratio=None,
        cycle_factor=_estimate(cycle),
        tokens_factor=_estimate(tokens),
        break_even=_break_even(usable, list(both.values())) if whole else None,
        proposed=pool(m.a for m in usable).P,
        refused=refused,
        round_ratios={
            str(r): math.exp(m)
            for r, v in decode.items()
            if (m := mean(list(v.values()))) is not None
        },
    )


def _key(match: Match) -> tuple[str, int]:
    return match.a.prompt_id, match.a.turn


def _by_round(
    found: Iterable[Match], measure: Callable[[Match], float | None]
) -> dict[int, dict[tuple[str, int], float]]:
    values: dict[int, dict[tuple[str, int], float]] = {}
    for match in found:
        if (value := measure(match)) is not None:
            values.setdefault(match.round, {})[_key(match)] = value
    return values


def _decode(m: Match) -> float | None:
    return _log(m.b.timing.tpot_ms, m.a.timing.tpot_ms)


def _wall(m: Match) -> float | None:
    return _log(m.b.timing.t_last_s, m.a.timing.t_last_s)


def _wall_same_prefill(m: Match) -> float | None:
    """Log ratio of whole answers if both had taken the reference's time to first token."""
    a, b = m.a.timing, m.b.timing
    if a.t_first_s is None or a.t_last_s is None or b.t_first_s is None:
        return None
    return _log(b.t_last_s, b.t_first_s + (a.t_last_s - a.t_first_s))


def _cycle(steps: tuple[Steps, Steps]) -> float | None:
    return _log(steps[1].cycle_s, steps[0].cycle_s)


def _tokens(steps: tuple[Steps, Steps]) -> float | None:
    return _log(steps[0].tokens_per_step, steps[1].tokens_per_step)


def _log(top: float | None, bottom: float | None) -> float | None:
    return math.log(top / bottom) if top and bottom and top > 0 and bottom > 0 else None


def _estimate(values: LogRatios) -> float | None:
    """The same mean of round means that the ratio itself is, so that factors multiply to it."""
    centre = mean(round_means(values))
    return None if centre is None else math.exp(centre)


def _steps(match: Match, speculative: tuple[bool, bool]) -> tuple[Steps, Steps] | None:
    a = steps_of(match.a, speculative=speculative[0])
    b = steps_of(match.b, speculative=speculative[1])
    return (a, b) if a is not None and b is not None else None


def _break_even(usable: list[Match], both: list[tuple[Steps, Steps]]) -> BreakEven | None:
    """Pooled over the compared prompts of both sides."""
    steps = sum(a.count for a, _ in both)
    reference_tokens = sum(b.tokens for _, b in both)
    if not steps or not reference_tokens:
        return None
    cycle_s = math.fsum(a.duration_s for a, _ in both) / steps
    tpot_s = math.fsum(b.duration_s for _, b in both) / reference_tokens
    needed = break_even_tokens_per_step(cycle_s, tpot_s)
    total = pool(m.a for m in usable)
    length = (
        break_even_accept_length(needed, total.V, total.T or 0) if total.V is not None else None
    )
    return BreakEven(
        needed,
        sum(a.tokens for a, _ in both) / steps,
        length,
        total.accept_length,
        None if total.proposed_per_step is None else 1 + total.proposed_per_step,
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


def _unfit(match: Match) -> str | None:
    """Why a matched prompt does not enter the comparison; None when it does."""
    if match.a.prompt_sha256 != match.b.prompt_sha256:
        return "not the same prompt"
    if completion_tokens(match.a) != completion_tokens(match.b):
        return "unequal output lengths"
    for record in (match.a, match.b):
        if (why := flaw(record)) is not None:
            return why
    return None
