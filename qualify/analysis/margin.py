"""The relative difference under which two sides count as tied, and where it is from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis.outcomes import LEAST_ROUNDS
from qualify.analysis.pairs import PairResult
from qualify.analysis.stats import t_quantile
from qualify.plan import Plan, Side

DEFAULT_MARGIN = 0.03
LEAST_MARGIN = 0.01  # however quiet a machine, a smaller difference is not worth choosing by


@dataclass(frozen=True)
class Margin:
    """value: 0.03 is 3% either way; source: a sentence on where that comes from."""

    value: float
    source: str


def margin_of(plan: Plan, own: Sequence[PairResult], pairs: Sequence[PairResult]) -> Margin:
    """3%; or what equal work was seen to differ by, where the campaign shows that.

    From 3 rounds on, a pair of two sides that are launched alike (an A/A pair) says it: the
    margin is then the difference that 95% of comparisons over that many rounds stay within.
    With fewer rounds an interval knows nothing of launches. What happened without any cause
    then counts, where it is more than 3%: the baseline relaunched, sides launched alike, and
    a side that proposed nothing and was still faster.
    """
    rounds = {launch.round for launch in plan.launches if launch.purpose == "measure"}
    alike = [p for p in pairs if launched_alike(plan, p.side, p.reference)]
    if len(rounds) >= LEAST_ROUNDS:
        return _from_alike(alike) or Margin(DEFAULT_MARGIN, "default")
    seen = [
        (
            abs(math.log(p.decode.ratio)),
            f"relaunching {plan.baseline} alone changed its decode by that much in {p.cell}",
        )
        for p in own
        if p.decode is not None
    ]
    seen += [
        (
            abs(math.log(p.decode.ratio)),
            f"{p.side} and {p.reference}, launched alike, differed by that much in {p.cell}",
        )
        for p in alike
        if p.decode is not None
    ]
    seen += [
        (
            math.log(p.decode.ratio),
            f"{p.side} was that much faster in {p.cell}, where it proposed nothing",
        )
        for p in pairs
        if p.decode is not None and p.proposed == 0
    ]
    worst, source = max(seen, default=(0.0, ""))
    if math.expm1(worst) > DEFAULT_MARGIN:
        return Margin(math.expm1(worst), source)
    return Margin(DEFAULT_MARGIN, "default; relaunching alone changed less" if own else "default")


def launched_alike(plan: Plan, one: str, other: str) -> bool:
    """Do two sides differ in nothing but their name? Then no difference between them is real."""
    sides: dict[str, Side] = {launch.side.name: launch.side for launch in plan.launches}
    a, b = sides.get(one), sides.get(other)
    if a is None or b is None or one == other:
        return False
    return (a.mode, a.profile, a.args, a.env) == (b.mode, b.profile, b.args, b.env)


def _from_alike(alike: Sequence[PairResult]) -> Margin | None:
    """t * s / sqrt(rounds), s the spread of round means around no difference, over all cells."""
    enough = [p for p in alike if p.rounds >= LEAST_ROUNDS]
    if not enough:
        return None
    logs = [math.log(r) for p in enough for r in p.round_ratios.values()]
    rounds = min(p.rounds for p in enough)
    spread = math.sqrt(math.fsum(x * x for x in logs) / len(logs))
    value = math.expm1(t_quantile(rounds) * spread / math.sqrt(rounds))
    names = f"{enough[0].side} and {enough[0].reference}"
    if value < LEAST_MARGIN:
        return Margin(LEAST_MARGIN, f"{names}, launched alike, differed by less")
    return Margin(value, f"what {names}, launched alike, differ by over {rounds} rounds")
