"""Hashes that only a look at this machine can tell: corpora, tokenizer, checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from qualify.campaign.schema import Campaign
from qualify.engines.resolve import ResolvedLaunch
from qualify.engines.spec import EngineSpec


def origins_of(
    campaign: Campaign, engine: EngineSpec, resolved: Mapping[str, ResolvedLaunch]
) -> dict[str, str]:
    """Parts of the plan's identity; see `planning.identity.identity_of`."""
    parts: dict[str, str] = {}
    for launch in resolved.values():
        if launch.url is not None:
            parts["attach"] = launch.url
    return parts
