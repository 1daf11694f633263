"""Which mode for a user's own mix of work: measured cells, weighted as the user says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qualify.analysis.outcomes import Finding
from qualify.analysis.pairs import PairResult
from qualify.analysis.recommend import Row
from qualify.analysis.sides import SideCell
from qualify.analysis.words import listed, times


@dataclass(frozen=True)
class Mix:
    """weights: cell id -> share of requests, summing to 1. accept_length: side -> what the
    user measured on prompts of their own, bonus included."""

    weights: dict[str, float]
    accept_length: dict[str, float]


@dataclass(frozen=True)
class SideInMix:
    """One side against the baseline over the whole mix.

    decode: time per output token, baseline over side; low and high are reached if every
    cell's ratio lay at that end of its interval at once, which is wider than 95%.
    whole_answer: the same for answers with the baseline's prefill. out: why it cannot be
    chosen; its figures are then None.
    """

    side: str
    decode: float | None
    low: float | None
    high: float | None
    whole_answer: float | None
    outcome: str | None
    out: str | None


@dataclass(frozen=True)
class MixAnswer:
    """mode None: nothing can be recommended. settled False: the baseline, as a default."""

    mode: str | None
    settled: bool
    also: tuple[str, ...]
    why: str
    prefill_share: float | None
    weights: dict[str, float]
    sides: tuple[SideInMix, ...]


def answer_mix(
    mix: Mix,
    baseline: str,
    margin: float,
    rows: Sequence[Row],
    pairs: Sequence[PairResult],
    sides: Sequence[SideCell],
) -> MixAnswer:
    """Judged by decode, as everywhere; the whole answer stands beside it."""
    by_cell = {r.cell: r for r in rows if r.cell is not None}
    measured = {(s.side, s.cell): s for s in sides}
    broken = [c for c in mix.weights if by_cell[c].mode is None]
    if broken:
        why = f"Nothing can be recommended in {listed(broken)}: {by_cell[broken[0]].why}"
        return MixAnswer(None, False, (), why, None, mix.weights, ())
    base = {c: measured[baseline, c] for c in mix.weights}
    found = []
    for side in dict.fromkeys(p.side for p in pairs if p.reference == baseline):
        here = {p.cell: p for p in pairs if (p.side, p.reference) == (side, baseline)}
        found.append(_side(side, mix, margin, by_cell, here, base, measured))
    ahead = sorted((s for s in found if s.outcome == "ahead"), key=lambda s: -(s.decode or 0.0))
    tied = tuple(s.side for s in found if s.outcome == "tied")
    open_ = [s for s in found if s.outcome == "not enough data"]
    mode = ahead[0].side if ahead else baseline
    return MixAnswer(
        mode=mode,
        settled=bool(ahead) or not open_,
        also=() if ahead else tied,
        why=_why(mode, baseline, found, mix),
        prefill_share=_prefill(mix, base),
        weights=mix.weights,
        sides=tuple(found),
    )


def _side(
    side: str,
    mix: Mix,
    margin: float,
    rows: Mapping[str, Row],
    here: Mapping[str, PairResult],
    base: Mapping[str, SideCell],
    measured: Mapping[tuple[str, str], SideCell],
) -> SideInMix:
    def out(why: str) -> SideInMix:
        return SideInMix(side, None, None, None, None, None, why)

    failed = {c: f for cell in mix.weights for c, f in [(cell, rows[cell].refused.get(side))] if f}
    if failed:
        cell, checks = next(iter(failed.items()))
        return out(f"it fails {listed(checks)} in {cell}")
    points: dict[str, tuple[float, float, float]] = {}
    for cell in mix.weights:
        finding = here[cell].decode if cell in here else None
        if finding is None:
            return out(f"it was not compared in {cell}")
        factor = 1.0
        if side in mix.accept_length:
            known = _factor(mix.accept_length[side], measured.get((side, cell)), here[cell])
            if known is None:
                return out(f"its accept length in {cell} is not known, so yours cannot replace it")
            factor = known
        points[cell] = _reach(finding, factor)
    middle, low, high = (_decode(mix, base, points, end) for end in range(3))
    decided = [d for c in mix.weights if (d := here[c].decode) is not None]
    unsure = any(d.low is None for d in decided)
    idle = all(here[c].proposed == 0 for c in mix.weights)
    return SideInMix(
        side,
        middle,
        None if unsure else low,
        None if unsure else high,
        _whole(mix, base, points),
        _word(middle, None if unsure or idle else (low, high), margin),
        None,
    )


def _reach(finding: Finding, factor: float) -> tuple[float, float, float]:
    low = finding.ratio if finding.low is None else finding.low
    high = finding.ratio if finding.high is None else finding.high
    return finding.ratio * factor, low * factor, high * factor


def _factor(length: float, side: SideCell | None, pair: PairResult) -> float | None:
    """How many more tokens a step gives at that accept length, at the same cycle time."""
    spec = side.speculation if side is not None else None
    if spec is None or not spec.V or spec.accept_length is None or pair.break_even is None:
        return None
    plain = spec.T or 0
    then = spec.V * length + plain
    return then / (spec.V * spec.accept_length + plain)


def _decode(
    mix: Mix,
    base: Mapping[str, SideCell],
    points: Mapping[str, tuple[float, float, float]],
    end: int,
) -> float:
    """Weighted time per token of the baseline over that of the side."""
    own = {c: base[c].tpot_ms.median or 0.0 for c in mix.weights}
    return _weighted(mix, own) / _weighted(mix, {c: v / points[c][end] for c, v in own.items()})


def _whole(
    mix: Mix, base: Mapping[str, SideCell], points: Mapping[str, tuple[float, float, float]]
) -> float | None:
    ends = {c: base[c].end_s.median for c in mix.weights}
    firsts = {c: base[c].ttft_s.median for c in mix.weights}
    then = {}
    for cell, end in ends.items():
        first = firsts[cell]
        if end is None or first is None:
            return None
        then[cell] = first + (end - first) / points[cell][0]
    return _weighted(mix, {c: v or 0.0 for c, v in ends.items()}) / _weighted(mix, then)


def _weighted(mix: Mix, values: Mapping[str, float]) -> float:
    return math.fsum(w * values[c] for c, w in mix.weights.items())


def _prefill(mix: Mix, base: Mapping[str, SideCell]) -> float | None:
    firsts = {c: base[c].ttft_s.median for c in mix.weights}
    ends = {c: base[c].end_s.median for c in mix.weights}
    if None in firsts.values() or None in ends.values():
        return None
    whole = _weighted(mix, {c: v or 0.0 for c, v in ends.items()})
    return _weighted(mix, {c: v or 0.0 for c, v in firsts.items()}) / whole if whole else None


def _word(ratio: float, interval: tuple[float, float] | None, margin: float) -> str:
    if interval is None:
        return "not enough data"
    low, high = interval
    if ratio > 1 + margin and low > 1:
        return "ahead"
    if ratio < 1 / (1 + margin) and high < 1:
        return "behind"
    if 1 / (1 + margin) <= low and high <= 1 + margin:
        return "tied"
    return "not enough data"


def _why(mode: str, baseline: str, found: Sequence[SideInMix], mix: Mix) -> str:
    told = []
    for s in found:
        if s.out is not None:
            told.append(f"{s.side} is out: {s.out}.")
        elif s.decode is not None:
            sure = "" if s.low is None or s.high is None else f" ({s.low:.2f} to {s.high:.2f})"
            yours = " at your accept length" if s.side in mix.accept_length else ""
            told.append(
                f"{s.side} decodes this mix {times(s.decode)} as fast as {baseline}{sure}"
                f"{yours}: {s.outcome}."
            )
    return " ".join(told) or f"{mode} is the only mode that was compared."
