"""What is compared with what, and in which order it is launched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import combinations

from qualify.campaign.schema import Campaign
from qualify.plan import Side


def all_sides(campaign: Campaign, default_profile: str) -> tuple[Side, ...]:
    """Modes, then variants, as the file has them; each with its profile resolved."""
    modes = [
        Side(mode, mode, _profile(campaign, mode, mode, default_profile), {}, {})
        for mode in campaign.modes
    ]
    variants = [
        Side(
            name,
            v.mode,
            v.profile or _profile(campaign, name, v.mode, default_profile),
            dict(v.args),
            dict(v.env),
        )
        for name, v in campaign.variants.items()
    ]
    return (*modes, *variants)


def baseline_of(campaign: Campaign) -> str:
    return campaign.baseline or campaign.modes[0]


def pairs_of(campaign: Campaign, sides: Iterable[Side]) -> tuple[tuple[str, str], ...]:
    """Pairs to compare, without repeats; what `expect:` names is always among them."""
    names = [s.name for s in sides]
    baseline = baseline_of(campaign)
    wanted: list[tuple[str, str]] = []
    if campaign.pairs == "baseline":
        wanted = [(baseline, n) for n in names if n != baseline]
    elif campaign.pairs == "all":
        ordered = [n for n in (baseline, *names) if n in names]
        wanted = list(combinations(dict.fromkeys(ordered), 2))
    else:
        wanted = [(a, b) for a, b in campaign.pairs]
    wanted += [(e.pair[0], e.pair[1]) for e in campaign.expect]
    seen: dict[frozenset[str], tuple[str, str]] = {}
    for pair in wanted:
        if pair[0] in names and pair[1] in names:
            seen.setdefault(frozenset(pair), pair)
    return tuple(seen.values())


def launch_order(campaign: Campaign, sides: Iterable[Side], round_number: int) -> list[Side]:
    """A seeded order; every even round reverses the one before it.

    A machine that warms up or slows down over a round then favours each side as often as
    it hurts it, which a fresh shuffle of a few sides would not promise.
    """
    block = (round_number + 1) // 2

    def key(side: Side) -> bytes:
        text = f"{campaign.campaign}\0{campaign.seed}\0order\0{block}\0{side.name}"
        return hashlib.sha256(text.encode()).digest()

    return sorted(sides, key=key, reverse=round_number % 2 == 0)


def _profile(campaign: Campaign, name: str, mode: str, default: str) -> str:
    if isinstance(campaign.profile, str):
        return campaign.profile
    table = campaign.profile or {}
    return table.get(name) or table.get(mode) or default
