"""The one way from a file to a campaign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualify.campaign.checks import NOT_BUILT, as_written
from qualify.campaign.document import Document, read_document
from qualify.campaign.faults import CampaignFaults
from qualify.campaign.limits import EngineLimits, check_limits
from qualify.campaign.names import check_names
from qualify.campaign.rules import check_rules
from qualify.campaign.schema import Campaign
from qualify.campaign.shape import validate
from qualify.errors import UsageError


@dataclass(frozen=True)
class Loaded:
    """A campaign that may be planned, with what a reader should know before it runs."""

    campaign: Campaign
    file: Path
    warnings: tuple[str, ...]


def load_campaign(path: Path, find_engine: Callable[[str], EngineLimits] | None = None) -> Loaded:
    """Read `path` strictly; `find_engine` turns an engine's name into its definition.

    Raises CampaignFaults with everything that is wrong, in file order. Without `find_engine`
    nothing that depends on the engine (modes, profiles, sizes) is checked.
    """
    document = read_document(path)
    campaign = validate(document)
    check_rules(document)
    check_names(document)
    warnings: list[str] = []
    engine = _engine(document, find_engine)
    if engine is not None:
        warnings += check_limits(document, engine)
    if document.faults or campaign is None:
        raise CampaignFaults(document.faults)
    return Loaded(campaign, path, (*warnings, *_not_built(campaign)))


def campaign_schema() -> dict[str, Any]:
    """The JSON Schema of a campaign file, for editors."""
    schema = Campaign.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "qualify campaign",
    }


def _engine(
    document: Document, find_engine: Callable[[str], EngineLimits] | None
) -> EngineLimits | None:
    name = document.value.get("engine")
    if find_engine is None or not isinstance(name, str) or not name:
        return None
    try:
        return find_engine(name)
    except CampaignFaults:
        raise
    except UsageError as error:
        document.fault(("engine",), error.message, error.remedy)
        return None


def _not_built(campaign: Campaign) -> list[str]:
    asked = as_written(campaign.checks)
    found = [
        f"check `{name}` is not part of this version: its verdict will be not-run"
        for name in NOT_BUILT
        if asked.get(name)
    ]
    return found
