"""Did a run get worse than an earlier one? Thresholds from its campaign, judged with noise.

A threshold is crossed only where the interval clears it, corrected over all tests of the gate;
it is held only where the interval lies within it. What is neither is open, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qualify.analysis.gate_evals import eval_changes
from qualify.analysis.outcomes import LEAST_ROUNDS, LEVEL, Finding
from qualify.analysis.sides import SideCell
from qualify.analysis.stats import t_tail
from qualify.analysis.versus import LikeCell, Unlike, Versus
from qualify.checks.verdict import Verdict
from qualify.errors import ExitCode
from qualify.records.run import Run

TPOT, TTFT = "tpot_regression_pct", "ttft_regression_pct"
THROUGHPUT, LENGTH = "throughput_regression_pct", "accept_length_regression_pct"
EVALS, TAIL = "evals_regression_pct", "tail_p99_over_median"
REGRESSED, HELD, OPEN = "regressed", "held", "open"


@dataclass(frozen=True)
class GateTest:
    """One threshold in one place. change and limit are in the gate's own unit: percent worse
    than before, or for tail_p99_over_median the ratio itself. p: how often noise alone would
    clear the limit like this, corrected; None where there is no interval."""

    gate: str
    where: str
    change: float | None
    limit: float
    p: float | None
    outcome: str
    sentence: str


@dataclass(frozen=True)
class GateResult:
    """word: pass, fail or inconclusive; reason: one sentence. new_failures: checks that
    fail now and did not before."""

    word: str
    exit_code: ExitCode
    reason: str
    run: str
    baseline: str | None
    tests: tuple[GateTest, ...]
    new_failures: tuple[str, ...]
    unlike: tuple[Unlike, ...]


@dataclass(frozen=True)
class Judged:
    """A run with what was found in it."""

    run: Run
    verdicts: Sequence[Verdict]
    sides: Sequence[SideCell]


def judge_gate(
    now: Judged, before: Judged | None, found: Versus | None, gates: Mapping[str, float]
) -> GateResult:
    """before None: there is no run to compare with; what needs none is judged all the same."""
    tests = list(_tails(now.sides, gates))
    if before is not None and found is not None:
        tests += _corrected(list(_changes(found, gates)))
        if EVALS in gates:
            tests += [
                GateTest(EVALS, c.where, c.loss_pct, gates[EVALS], c.p, c.outcome, c.sentence)
                for c in eval_changes(before.run, now.run, gates[EVALS])
            ]
    failing = _new_failures(now, before)
    word, code, reason = _decide(tests, failing, before, found, gates)
    return GateResult(
        word,
        code,
        reason,
        now.run.id,
        before.run.id if before is not None else None,
        tuple(tests),
        tuple(failing),
        found.unlike if found is not None else (),
    )


def _new_failures(now: Judged, before: Judged | None) -> list[str]:
    def failing(judged: Judged | None) -> dict[str, str]:
        verdicts = judged.verdicts if judged is not None else ()
        return {
            f"{v.check} ({v.subject})": v.sentence
            for v in verdicts
            if v.demanded and v.outcome == "fail"
        }

    old = failing(before)
    return [name for name in failing(now) if name not in old]


def _changes(found: Versus, gates: Mapping[str, float]) -> Iterator[GateTest]:
    for cell in found.cells:
        where = f"{cell.side}, {cell.cell}"
        few = min(cell.launches_before, cell.launches_after) < LEAST_ROUNDS
        # Too few launches know nothing of restarts: the limit must be cleared by the margin.
        extra = math.log1p(found.margin) if few else 0.0
        for gate, finding in _measured(cell):
            if gate in gates and finding is not None:
                yield _test(gate, where, finding, gates[gate], extra)


def _measured(cell: LikeCell) -> Iterator[tuple[str, Finding | None]]:
    yield TPOT, cell.decode
    yield TTFT, cell.ttft
    yield THROUGHPUT, cell.throughput
    yield LENGTH, cell.accept_length


def _edge(gate: str, limit: float) -> float:
    """The log ratio at the limit: times grow by that much, rates and lengths shrink."""
    if gate in (TPOT, TTFT):
        return math.log1p(limit / 100)
    return -math.log1p(-min(limit, 99.9) / 100)


def _percent(gate: str, worse: float) -> float:
    return 100 * (math.expm1(worse) if gate in (TPOT, TTFT) else -math.expm1(-worse))


def _test(gate: str, where: str, finding: Finding, limit: float, extra: float) -> GateTest:
    worse, edge = -math.log(finding.ratio), _edge(gate, limit)
    change = _percent(gate, worse)
    if finding.error is None or finding.df is None:
        return GateTest(gate, where, change, limit, None, OPEN, "")
    return GateTest(
        gate,
        where,
        change,
        limit,
        _above(worse - edge - extra, finding.error, finding.df),
        HELD if _above(edge - worse, finding.error, finding.df) <= LEVEL else OPEN,
        "",
    )


def _above(distance: float, error: float, df: float) -> float:
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return t_tail(distance / error, df)


def _corrected(tests: list[GateTest]) -> list[GateTest]:
    """Holm over all tests: a gate with a hundred cells fails as rarely by chance as with one."""
    order = sorted((t.p, i) for i, t in enumerate(tests) if t.p is not None)
    reached = 0.0
    for rank, (p, i) in enumerate(order):
        reached = max(reached, min(1.0, p * (len(order) - rank)))
        outcome = REGRESSED if reached <= LEVEL else tests[i].outcome
        tests[i] = replace(tests[i], p=reached, outcome=outcome)
    return [replace(t, sentence=_sentence(t)) for t in tests]


_WORDS = {TPOT: "TPOT", TTFT: "TTFT", THROUGHPUT: "throughput", LENGTH: "accept length"}


def _sentence(test: GateTest) -> str:
    assert test.change is not None
    better = test.change < 0
    way = "better" if better else "worse"
    said = f"{_WORDS[test.gate]} of {test.where} is {abs(test.change):.1f}% {way}"
    if test.outcome == REGRESSED:
        return f"{said}, clearly more than {test.limit:g}%."
    if test.outcome == HELD:
        return f"{said}, within {test.limit:g}%."
    beyond = test.change > test.limit
    return (
        f"{said}: beyond {test.limit:g}%, but noise could do that."
        if beyond
        else f"{said}; the interval is too wide to say that it is within {test.limit:g}%."
    )


def _tails(sides: Sequence[SideCell], gates: Mapping[str, float]) -> Iterator[GateTest]:
    if TAIL not in gates:
        return
    limit = gates[TAIL]
    for side in sides:
        tail, where = side.tpot_tail_ms, f"{side.side}, {side.cell}"
        ratio = tail.over_median
        if tail.quantile != 0.99 or ratio is None or not side.tpot_ms.median:
            said = f"p99 of {where} needs 100 requests, and {tail.n} count."
            yield GateTest(TAIL, where, None, limit, None, OPEN, said)
            continue
        ends = (tail.interval.low, tail.interval.high) if tail.interval is not None else None
        low, high = (v / side.tpot_ms.median for v in ends) if ends else (ratio, ratio)
        outcome = REGRESSED if low > limit else HELD if high <= limit or ratio <= limit else OPEN
        said = f"p99 of TPOT of {where} is {ratio:.2f} times its median (limit {limit:g})."
        yield GateTest(TAIL, where, ratio, limit, None, outcome, said)


def _decide(
    tests: Sequence[GateTest],
    failing: Sequence[str],
    before: Judged | None,
    found: Versus | None,
    gates: Mapping[str, float],
) -> tuple[str, ExitCode, str]:
    bad = [t for t in tests if t.outcome == REGRESSED]
    if bad or failing:
        said = [t.sentence for t in bad[:3]]
        if failing:
            said.insert(0, f"Newly failing: {', '.join(failing[:5])}.")
        more = max(0, len(bad) - 3) + max(0, len(failing) - 5)
        return (
            "fail",
            ExitCode.NOT_QUALIFIED,
            " ".join(said) + (f" And {more} more." if more else ""),
        )
    if before is None:
        return "pass", ExitCode.QUALIFIED, "There is no earlier good run: nothing was compared."
    compared = [g for g in gates if g in (TPOT, TTFT, THROUGHPUT, LENGTH)]
    if compared and found is not None and not found.cells:
        why = found.unlike[0].why if found.unlike else "neither run measured anything"
        return "inconclusive", ExitCode.INCONCLUSIVE, f"Nothing can be compared: {why}."
    asleep = [
        gate
        for gate in gates
        if (mine := [t for t in tests if t.gate == gate]) and all(t.outcome == OPEN for t in mine)
    ]
    if asleep:
        why = next(t.sentence for t in tests if t.gate == asleep[0])
        return (
            "inconclusive",
            ExitCode.INCONCLUSIVE,
            f"{', '.join(asleep)} could not be judged anywhere: {why} More prompts or rounds "
            f"would tell.",
        )
    if not tests:
        none = "No check newly fails; the campaign sets no threshold to compare by."
        return "pass", ExitCode.QUALIFIED, none
    held, open_ = (sum(t.outcome == o for t in tests) for o in (HELD, OPEN))
    left = f", {open_} open for noise" if open_ else ""
    whole = f"No threshold is crossed and no check newly fails: {held} held{left}."
    return "pass", ExitCode.QUALIFIED, whole
