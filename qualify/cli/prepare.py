"""From a campaign file to everything that a run needs: the plan, each side's command, prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qualify.campaign.checks import picked
from qualify.campaign.load import load_campaign
from qualify.campaign.schema import Campaign
from qualify.cli.origins import origins_of
from qualify.engines.resolve import ResolvedLaunch, resolve
from qualify.engines.spec import EngineSpec, load_engine
from qualify.errors import UsageError
from qualify.evals.nouns import Kind
from qualify.evals.planned import Bench, bench_of
from qualify.plan import Plan
from qualify.planning.build import make_plan
from qualify.planning.only import parse_only
from qualify.planning.sides import all_sides


@dataclass(frozen=True)
class Prepared:
    """`resolved` has the start command of each planned side, by its name."""

    file: Path
    campaign: Campaign
    engine: EngineSpec
    resolved: dict[str, ResolvedLaunch]
    plan: Plan
    bench: Bench


def prepare(
    file: Path,
    *,
    only: Iterable[str] = (),
    attach: str | None = None,
    kinds: Mapping[str, Kind] | None = None,
    checks: Iterable[str] = (),
) -> Prepared:
    """Read, check and plan; nothing is built or started, and nothing fetched but the problems
    of evaluations that are not on this machine. `kinds` replaces the evaluations' own; `checks`,
    where any is named, picks those that are judged.

    Raises CampaignFaults for what the file says, UsageError for what it asks of this machine.
    """
    loaded = load_campaign(file, load_engine)
    campaign = loaded.campaign
    if names := tuple(checks):
        campaign = campaign.model_copy(update={"checks": picked(campaign.checks, names)})
    engine = load_engine(campaign.engine)
    chosen = parse_only(only)
    sides = all_sides(campaign, engine.default_profile)
    wanted = [s for s in sides if chosen.allows("mode", s.name)]
    resolved = {
        side.name: resolve(
            engine,
            side.mode,
            side.profile,
            dict(side.args),
            dict(side.env),
            campaign.model,
            tokenizer=campaign.tokenizer,
            attach_url=attach,
            launch=campaign.launch,
        )
        for side in wanted
    }
    bench = bench_of(campaign, kinds)
    attached = any(r.kind == "attach" for r in resolved.values())
    plan = make_plan(
        campaign,
        engine,
        origins=origins_of(campaign, engine, resolved, chosen),
        only=chosen,
        warnings=loaded.warnings,
        relaunch=not attached,
        evals=bench.plans,
    )
    if attached:
        _one_launch(plan)
    return Prepared(file, campaign, engine, resolved, plan, bench)


def _one_launch(plan: Plan) -> None:
    """A running server has one mode, and nobody here can start it a second time."""
    sides = list(dict.fromkeys(launch.side.name for launch in plan.launches))
    if len(sides) > 1:
        raise UsageError(
            f"An attached server decodes in one mode, and this plan has {len(sides)}: "
            f"{', '.join(sides)}.",
            f"Say which mode it runs in: --only mode={sides[0]}.",
        )
