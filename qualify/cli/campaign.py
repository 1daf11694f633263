"""`qualify campaign check FILE` and `qualify campaign schema`."""

from __future__ import annotations

from pathlib import Path

import click

from qualify.cli.options import campaign_argument, json_option
from qualify.cli.output import print_faults, print_json, warn
from qualify.errors import ExitCode


@click.group()
def command() -> None:
    """Check a campaign file; print its JSON Schema."""


@command.command()
@campaign_argument
@json_option
def check(campaign: Path, as_json: bool) -> int:
    """Read a campaign strictly and tell everything that is wrong with it."""
    from qualify.campaign.faults import CampaignFaults
    from qualify.campaign.load import load_campaign
    from qualify.engines.spec import load_engine

    try:
        loaded = load_campaign(campaign, load_engine)
    except CampaignFaults as error:
        if not as_json:
            raise
        print_faults(campaign, error)
        return error.exit_code
    if as_json:
        warnings = list(loaded.warnings)
        print_json({"file": str(campaign), "ok": True, "faults": [], "warnings": warnings})
        return ExitCode.QUALIFIED
    for warning in loaded.warnings:
        warn(warning)
    click.echo(f"{campaign}: campaign {loaded.campaign.campaign} can be planned.")
    return ExitCode.QUALIFIED


@command.command()
def schema() -> None:
    """Print the JSON Schema of campaign files, for completion in an editor."""
    from qualify.campaign.load import campaign_schema

    print_json(campaign_schema())
