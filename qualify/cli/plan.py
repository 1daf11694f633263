"""`qualify plan CAMPAIGN`: what would be sent, in which order, and how long it should take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qualify.cli.options import (
    campaign_argument,
    check_names,
    checks_option,
    filter_words,
    json_option,
    only_options,
)
from qualify.cli.output import console, duration, print_faults, print_json, warn
from qualify.errors import ExitCode, QualifyError

if TYPE_CHECKING:
    from qualify.plan import EvalPlan, Plan
    from qualify.planning.estimate import Estimate


@click.command()
@campaign_argument
@only_options
@click.option("--attach", metavar="URL", help="Measure a server that already runs there.")
@checks_option
@json_option
def command(
    campaign: Path,
    only: tuple[str, ...],
    more: tuple[str, ...],
    attach: str | None,
    checks: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show the launches and cells of CAMPAIGN, its tokens and its time. Starts nothing."""
    from qualify.cli.prepare import prepare
    from qualify.cli.rates import estimate_for
    from qualify.records.codec import to_dict

    try:
        prepared = prepare(
            campaign,
            only=filter_words(only, more),
            attach=attach,
            checks=check_names(checks),
        )
    except QualifyError as error:
        if not as_json:
            raise
        print_faults(campaign, error)
        return error.exit_code
    guess = estimate_for(prepared)
    if as_json:
        print_json({"plan": to_dict(prepared.plan), "estimate": to_dict(guess)})
        return ExitCode.QUALIFIED
    for warning in prepared.plan.warnings:
        warn(warning)
    show(prepared.plan, guess)
    return ExitCode.QUALIFIED


def show(plan: Plan, guess: Estimate) -> None:
    """The plan as a table, then its sums, its basis and its hash."""
    from rich.table import Table

    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("launch", overflow="fold")
    table.add_column("cell", overflow="fold")
    for name in ("prompt", "requests", "output", "at once", "time"):
        table.add_column(name, justify="right")
    table.add_column("cache")
    for launch, sums in zip(plan.launches, guess.launches, strict=True):
        title = launch.id
        for cell, seconds in zip(launch.cells, sums.cells, strict=True):
            turns = f" x {cell.prompts.turns} turns" if cell.prompts.turns > 1 else ""
            warm = f" + {cell.warmup.count}" if cell.warmup else ""
            table.add_row(
                title,
                cell.id,
                f"{cell.prompts.tokens:,}",
                f"{cell.prompts.count}{turns}{warm}",
                f"{cell.sampling.output_tokens:,}" + ("" if cell.until == "length" else " max"),
                str(cell.concurrency),
                duration(seconds),
                cell.cache,
            )
            title = ""
        if launch.purpose == "margins":
            table.add_row(title, "margins, where outputs differ")
        for item, seconds in zip(launch.evals, sums.evals, strict=True):
            table.add_row(
                title,
                f"eval:{item.id}",
                _sizes(item),
                f"{len(item.problems)}",
                f"{item.sampling.output_tokens:,} max",
                str(item.concurrency),
                duration(seconds),
                item.cache,
            )
            title = ""
    out.print(table)
    out.print()
    for line in sums_in_words(plan, guess):
        out.print(line, markup=False, soft_wrap=True)


def _sizes(item: EvalPlan) -> str:
    """The sizes that were asked for, or about how long a prompt is on average."""
    asked = item.options.get("tokens")
    if asked is not None:
        sizes = [asked] if isinstance(asked, int) else asked
        return ", ".join(f"{n:,}" for n in sizes)
    if item.prompt_tokens is None or not item.problems:
        return "-"
    return f"about {item.prompt_tokens // len(item.problems):,}"


def sums_in_words(plan: Plan, guess: Estimate) -> list[str]:
    """The totals, one sentence a line."""
    load = guess.load
    cells = sum(len(launch.cells) for launch in plan.launches)
    evals = sum(len(launch.evals) for launch in plan.launches)
    asked = f" {evals} evaluations," if evals else ""
    lines = [
        f"{len(plan.launches)} launches, {cells} cells,{asked} {load.requests:,} requests "
        "(warm-up included).",
        f"{load.prompt_tokens:,} prompt tokens to prefill and {load.output_tokens:,} tokens to "
        "generate, at most.",
    ]
    probes = [p for launch in plan.launches for p in launch.probes]
    if probes:
        names = ", ".join(dict.fromkeys(p.name for p in probes))
        most = sum(p.requests for p in probes)
        tokens = sum(p.prompt_tokens for p in probes)
        lines.append(
            f"Of these the checks have {most:,} requests sent ({names}), {tokens:,} tokens."
        )
    if guess.seconds is None:
        lines.append("Time: unknown, because the engine's profile states no rates.")
    else:
        basis = "; ".join(guess.basis)
        lines.append(f"Time: about {duration(guess.seconds)}, from {basis}.")
    if "only" in plan.identity:
        lines.append(f"Only {plan.identity['only']}: a part of the campaign, with its own hash.")
    lines.append(f"Baseline {plan.baseline}; pairs: {_pairs(plan)}.")
    lines.append(f"Plan {plan.hash[:16]}")
    return lines


def _pairs(plan: Plan) -> str:
    shown: list[Any] = [f"{a} / {b}" for a, b in plan.pairs]
    return ", ".join(shown) if shown else "none"
