"""Sentences of the recommendation table, made from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from qualify.analysis.pairs import PairResult
from qualify.analysis.recommend import Row
from qualify.analysis.sides import SideCell
from qualify.analysis.words import listed, times


def tokens(low: int | None, high: int | None) -> str:
    if low is None or high is None:
        return "any length"
    return f"{low:,} tokens" if low == high else f"{low:,} to {high:,} tokens"


def span(
    workload: str, low: int | None, high: int | None, concurrency: int | None, cache: str | None
) -> str:
    """`code, 256 to 1,024 tokens, 4 at once, warm`; one at once and cold go without saying."""
    said = [workload, tokens(low, high)]
    if concurrency is not None and concurrency > 1:
        said.append(f"{concurrency} at once")
    if cache not in (None, "cold"):
        said.append(str(cache))
    return ", ".join(said)


def cached_name(workload: str | None, low: int | None, high: int | None) -> str:
    return f"repeated turns over a cached prefix, {tokens(low, high)} ({workload})"


def why(rows: Sequence[Row], here: Sequence[PairResult]) -> str:
    """One sentence a rival and outcome over the band's cells, then what is out and why."""
    groups: dict[tuple[str, str, bool], list[PairResult]] = {}
    for pair in here:
        assert pair.decode is not None
        groups.setdefault((pair.side, pair.decode.outcome, pair.proposed == 0), []).append(pair)
    said = [_group(side, outcome, idle, found) for (side, outcome, idle), found in groups.items()]
    if not said:
        said = [rows[0].why]
        return " ".join(said)
    for side in rows[0].refused:
        checks = list(dict.fromkeys(c for r in rows for c in r.refused.get(side, [])))
        said.append(f"{side} is not recommended here: it fails {listed(checks)}.")
    return " ".join(said)


def _group(side: str, outcome: str, idle: bool, found: Sequence[PairResult]) -> str:
    ratios = [p.decode.ratio for p in found if p.decode is not None]
    reference = found[0].reference
    low, high = times(min(ratios)), times(max(ratios))
    much = low if low == high else f"{low} to {high}"
    where = f"at {listed([f'{p.tokens:,}' for p in found])}"
    if idle:
        return f"{side} proposed nothing {where} ({much} of {reference}'s decode speed)."
    verb = {
        "ahead": f"decodes {much} as fast as {reference}",
        "behind": f"is behind, {much} of {reference}'s decode speed,",
        "tied": f"and {reference} are effectively tied ({much})",
    }.get(outcome, f"cannot be told from {reference} ({much})")
    return f"{side} {verb} {where}."


def weakest(said: Sequence[str]) -> str:
    """What is least sure of a band's cells is what is sure of the band."""
    ranks = ("no comparison", "one comparison", "within", "across launches, few", "across")

    def rank(text: str) -> int:
        return next((i for i, word in enumerate(ranks) if text.startswith(word)), -1)

    return min(said, key=rank)


def reverse(baseline: str, mode: str | None, here: Sequence[PairResult]) -> str:
    told = []
    if any(p.decode and p.decode.outcome == "not enough data" for p in here):
        told.append("more prompts or rounds could settle it")
    for side in dict.fromkeys(p.side for p in here):
        levels = [
            p.break_even
            for p in here
            if p.side == side
            and p.break_even
            and p.proposed != 0
            and p.decode
            and p.decode.outcome != "not enough data"
        ]
        if not levels:
            continue
        needed = _reach([x.needed_tokens_per_step for x in levels])
        reached = _reach([x.reached_tokens_per_step for x in levels])
        if side == mode:
            told.append(
                f"{baseline} would be the choice if a step of {side} committed fewer than "
                f"{needed} tokens (here {reached})"
            )
        elif mode == baseline:
            told.append(f"{side} would pay from {needed} tokens a step (here {reached})")
    return "; ".join(told) or "other prompts, or more rounds"


def _reach(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def either(pair: PairResult, mode: str | None) -> str:
    assert pair.wall is not None
    share = "" if pair.prefill_share is None else f": {pair.prefill_share:.0%} of it is prefill"
    return (
        f"Either for a single whole answer ({times(pair.wall.ratio)}, tied{share}); {mode} for "
        f"decode."
    )


def why_cached(mode: str, share: float) -> str:
    return (
        f"Later turns do not pay the prefill again, which is {share:.0%} of a cold answer here, "
        f"so decode decides, and {mode} leads it."
    )


def acceptance_spread(sides: Sequence[SideCell]) -> str:
    """How much each mode's accept length varies over the cells: consistency in numbers."""
    lengths: dict[str, list[float]] = {}
    for row in sides:
        if row.speculation is not None and row.speculation.accept_length is not None:
            lengths.setdefault(row.side, []).append(row.speculation.accept_length)
    told = [f"{_reach(v)} for {s}" for s, v in lengths.items() if len(v) > 1]
    return f"Accept length over the cells: {listed(told)}." if told else ""


def why_accepted(side: str, baseline: str, here: Sequence[PairResult]) -> str:
    ratios = [p.decode.ratio for p in here if p.decode is not None]
    low, high = times(min(ratios)), times(max(ratios))
    much = low if low == high else f"{low} to {high}"
    where = listed([p.cell for p in here])
    told = f"{side} leads where its steps commit enough: {much} in {where}"
    levels = [p.break_even for p in here if p.break_even is not None]
    if levels:
        told += (
            f", with {_reach([x.reached_tokens_per_step for x in levels])} tokens a step "
            f"against the {_reach([x.needed_tokens_per_step for x in levels])} that tie with "
            f"{baseline}"
        )
    return f"{told}."


def accepted_reverse(side: str, here: Sequence[PairResult]) -> str:
    levels = [p.break_even for p in here if p.break_even is not None]
    if not levels:
        return f"prompts on which {side} is accepted less"
    return f"fewer than {_reach([x.needed_tokens_per_step for x in levels])} tokens a step"
