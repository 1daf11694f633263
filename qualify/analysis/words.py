"""Sentences made from the numbers; nothing here knows a mode by name."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from qualify.analysis.outcomes import Finding
from qualify.analysis.pairs import PairResult

SAMPLE_ONLY = "a starting point: it covers the measured workloads and nothing else"


def times(ratio: float) -> str:
    return f"{ratio:.2f}\u00d7"


def interval(finding: Finding) -> str:
    if finding.low is None or finding.high is None:
        return "one comparison, no interval"
    return f"95% interval {finding.low:.2f} to {finding.high:.2f}"


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)


def why_ahead(pair: PairResult) -> str:
    finding = pair.decode
    assert finding is not None
    told = (
        f"{pair.side} decodes {times(finding.ratio)} as fast as {pair.reference} "
        f"({interval(finding)}){_factors(pair)}."
    )
    return f"{told}{_wall(pair)}"


def why_tied(pair: PairResult) -> str:
    finding = pair.decode
    assert finding is not None
    return (
        f"{pair.side} and {pair.reference} are effectively tied: {times(finding.ratio)} "
        f"({interval(finding)}), within {_percent(finding.margin)} either way{_factors(pair)}."
        f"{_idle(pair)}"
    )


def why_not(pair: PairResult) -> str:
    finding = pair.decode
    assert finding is not None
    if finding.outcome == "behind":
        return (
            f"{pair.side} is behind: {times(finding.ratio)} of {pair.reference}'s decode speed "
            f"({interval(finding)}){_factors(pair)}.{_idle(pair)}"
        )
    if finding.outcome == "ahead":
        return (
            f"{pair.side} measured {times(finding.ratio)} ({interval(finding)}) without "
            f"proposing a single draft: it decoded plainly, so that is no merit of it."
        )
    leaning = {"faster": "points ahead", "slower": "points behind", "level": "stands"}
    return (
        f"Not enough data to separate {pair.side} from {pair.reference}: it "
        f"{leaning[finding.direction]} at {times(finding.ratio)} ({interval(finding)}; a "
        f"difference under {_percent(finding.margin)} counts as none).{_idle(pair)}"
    )


def _idle(pair: PairResult) -> str:
    """A drafter that proposed nothing explains itself."""
    return " It proposed nothing here and decoded plainly." if pair.proposed == 0 else ""


def _factors(pair: PairResult) -> str:
    if pair.cycle_factor is None or pair.tokens_factor is None:
        return ""
    cost = 1 / pair.cycle_factor
    told = (
        f": a step takes {times(cost)} the time and commits {times(pair.tokens_factor)} the tokens"
    )
    level = pair.break_even
    if level and level.reached_accept_length is not None:
        told += f", accept length {level.reached_accept_length:.2f}"
        if level.possible_accept_length is not None:
            told += f" of {level.possible_accept_length:.3g}"
    return told


def _wall(pair: PairResult) -> str:
    """Said where prefill, which both sides share, swallows much of a decode gain."""
    if pair.wall_same_prefill is None or pair.decode is None:
        return ""
    if abs(pair.wall_same_prefill - pair.decode.ratio) < 0.05:
        return ""
    took = times(1 / pair.wall_same_prefill)
    return f" With the same prefill the whole answer takes {took} the time."


def sureness(lead: Finding | None, open_checks: Sequence[str]) -> str:
    if lead is None:
        said = "no comparison behind it"
    elif lead.basis == "one":
        said = "one comparison: a direction, not a distribution"
    elif lead.basis == "prompts":
        said = f"{lead.scope}, over {lead.n} prompts"
    else:
        said = f"{lead.scope} ({lead.n} rounds)"
    if open_checks:
        said += f"; not settled here: {listed(list(dict.fromkeys(open_checks)))}"
    return said


def reversal(baseline: str, mode: str, rivals: Mapping[str, PairResult]) -> str:
    told = []
    if any(p.decode and p.decode.outcome == "not enough data" for p in rivals.values()):
        told.append("more prompts or rounds could settle it")
    for side, pair in rivals.items():
        if pair.proposed == 0:
            told.append(f"prompts on which {side} proposes something")
            continue
        level = pair.break_even
        if level is None or pair.decode is None or pair.decode.outcome == "not enough data":
            continue
        needed, reached = level.needed_tokens_per_step, level.reached_tokens_per_step
        if side == mode:
            told.append(
                f"{baseline} would be the choice if a step of {side} committed fewer than "
                f"{needed:.2f} tokens (here {reached:.2f})"
            )
        elif mode == baseline:
            told.append(f"{side} would pay from {needed:.2f} tokens a step (here {reached:.2f})")
    return "; ".join(told) or "other prompts, or more rounds"


def why_regret(
    best: str,
    losses: Mapping[str, tuple[float, str]],
    refused: Mapping[str, Sequence[str]],
    baseline: str,
    decided: Container[tuple[str, str]],
) -> str:
    """``decided``: side and cell where a side was told from the baseline. Elsewhere its loss is
    the baseline's, and is said of the baseline."""

    def takes(side: str) -> str:
        loss, cell = losses[side]
        if side == baseline or (side, cell) in decided:
            return f"takes {times(loss)} the time of the best in {cell}"
        return (
            f"cannot be told from {baseline} in {cell}, "
            f"where {baseline} takes {times(loss)} the time of the best"
        )

    loss, _ = losses[best]
    rivals = "No mode that fails no check" if refused else "No mode"
    told = (
        f"{best} is the only mode that was measured everywhere and fails no check."
        if len(losses) == 1
        else f"{rivals} was measurably faster than {best} in any cell."
        if loss <= 1.0
        else f"{best} loses least where it is worst: it {takes(best)}."
    )
    for side, (other, _) in losses.items():
        if side != best:
            told += (
                f" {side} was nowhere measurably slower either."
                if other <= 1.0
                else f" {side} {takes(side)}."
            )
    for side, checks in refused.items():
        told += f" {side} is out: it fails {listed(list(checks))}."
    return told


def at_a_glance(rows: Sequence[tuple[str, str | None, bool]]) -> str:
    """(cell, mode, settled) of every row -> which mode where; a default is called one."""
    where: dict[str, list[str]] = {}
    open_: dict[str, list[str]] = {}
    for cell, mode, settled in rows:
        if mode is None:
            open_.setdefault("no recommendation", []).append(cell)
        else:
            (where if settled else open_).setdefault(mode, []).append(cell)
    if not rows:
        return "Nothing was measured."
    parts = [
        f"{mode} on {'every measured workload' if len(cells) == len(rows) else listed(cells)}"
        for mode, cells in sorted(where.items(), key=lambda item: len(item[1]))
    ]
    for mode, cells in open_.items():
        place = "every measured workload" if len(cells) == len(rows) else listed(cells)
        parts.append(
            f"{mode} on {place}"
            if mode == "no recommendation"
            else f"not settled on {place}, where {mode} stays the default"
        )
    if not where and len(open_) == 1 and "no recommendation" not in open_:
        return f"{next(iter(open_))}, the default: no measured workload settles for another mode."
    told = "; ".join(parts)
    return f"{told[0].upper()}{told[1:]}." if not where else f"{told}."


def regret_reversal(
    baseline: str,
    best: str,
    lead: Mapping[tuple[str, str], float],
    refused: Mapping[str, Sequence[str]],
) -> str:
    if refused:
        return f"a run in which {listed(list(refused))} passes every check"
    if best != baseline:
        return f"a workload on which {best} falls behind {baseline}"
    gains = [f"{side} in {cell}" for (side, cell), ratio in lead.items() if ratio > 1]
    if not gains:
        return "other prompts"
    shown = gains if len(gains) <= 4 else [*gains[:3], f"{len(gains) - 3} more"]
    return f"mostly work of the kind that gains: {listed(shown)}"


def _percent(margin: float) -> str:
    return f"{margin * 100:.3g}%"
