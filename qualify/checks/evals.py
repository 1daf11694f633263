"""No quality was lost: each evaluation in each mode, held against the baseline."""

from __future__ import annotations

import dataclasses
from typing import Any

from qualify.checks.settings import Settings
from qualify.checks.verdict import Outcome, Verdict
from qualify.evals.compare import EvalPair, EvalResult, evaluate, planned
from qualify.records.run import Run

GATE = "evals_regression_pct"
SURE = 0.05  # McNemar's p from which chance no longer explains sampled answers


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict an evaluation, measure and mode.

    The baseline has nothing to regress from: it passes when every answer was scored. Greedy
    answers leave chance nothing to explain, so any regression fails, unless the gate
    evals_regression_pct allows a net loss that large: then it is waived. With sampled
    answers it fails where McNemar's test is sure.
    """
    found = evaluate(run.plan, run.completions, run.scores)
    pairs = {(p.eval, p.measure, p.side): p for p in found.pairs}
    sampled = {i.id: i.sampling.temperature > 0 for i, _ in planned(run.plan)}
    verdicts = []
    for result in found.results:
        pair = pairs.get((result.eval, result.measure, result.side))
        verdicts.append(_judge(run, result, pair, sampled[result.eval]))
    return verdicts


def _judge(run: Run, result: EvalResult, pair: EvalPair | None, sampled: bool) -> Verdict:
    subject = f"{result.eval} ({result.measure}), {result.side}"
    evidence: dict[str, Any] = {"result": dataclasses.asdict(result)}

    def verdict(outcome: Outcome, sentence: str) -> Verdict:
        return Verdict("evals", subject, outcome, sentence, evidence)

    if result.unfinished is not None:
        return verdict("not-run", f"It does not count: {result.unfinished}.")
    part = f" of subset {result.subset}" if result.subset else ""
    said = (
        f"{result.passed} of {result.problems} problems{part} pass"
        f" ({result.pass_1:.1%}, 95% interval {result.low:.1%} to {result.high:.1%})"
    )
    if result.side == run.plan.baseline:
        return verdict("pass", f"{said}; this is the baseline.")
    if pair is None:
        return verdict("not-run", f"{said}, and the baseline has no result to compare with.")
    evidence["pair"] = dataclasses.asdict(pair)
    lost, gained = len(pair.regressions), len(pair.gains)
    change = (
        f"{said}: {lost} regression{'' if lost == 1 else 's'} and {gained}"
        f" gain{'' if gained == 1 else 's'} against {pair.reference}"
        f" (McNemar p = {pair.p_value:.3g}), {pair.identical} of {pair.problems} answers"
        " byte-identical"
    )
    broken = [c.problem for c in (*pair.regressions, *pair.gains) if c.identical]
    if broken:
        names = ", ".join(broken[:5])
        return verdict(
            "inconclusive", f"{change}; the same bytes were judged differently in {names}."
        )
    if lost == 0 or (sampled and pair.p_value >= SURE):
        return verdict("pass", f"{change}.")
    names = ", ".join(c.problem for c in pair.regressions[:10])
    more = f" and {lost - 10} more" if lost > 10 else ""
    allowed = run.plan.campaign.get("gates", {}).get(GATE)
    net_pct = 100.0 * (lost - gained) / pair.problems
    if allowed is not None and net_pct <= allowed:
        return verdict(
            "waived",
            f"{change}; the net loss of {net_pct:.3g}% is within {GATE}: {allowed:g}"
            f" ({names}{more}).",
        )
    return verdict("fail", f"{change}: {names}{more}.")
