"""`qualify run CAMPAIGN`: plan, measure, judge, report, and exit with the outcome."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
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
from qualify.cli.output import console, duration, is_interactive, warn
from qualify.cli.sandbox_options import cage_of, sandbox_options
from qualify.errors import ExitCode

if TYPE_CHECKING:
    from qualify.cli.prepare import Prepared
    from qualify.planning.estimate import Estimate

ASK_ABOVE_S = 1800.0  # a person is asked before a run that takes longer
REPORTS = Path("reports")


@click.command()
@campaign_argument
@only_options
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The run's folder; reports/NAME-TIME if left out.",
)
@click.option("--resume", is_flag=True, help="Go on with the latest run of it, or with --out.")
@click.option("--attach", metavar="URL", help="Measure a server that already runs there.")
@checks_option
@click.option("--yes", is_flag=True, help="Do not ask before a long run.")
@sandbox_options
@json_option
def command(
    campaign: Path,
    only: tuple[str, ...],
    more: tuple[str, ...],
    out: Path | None,
    resume: bool,
    attach: str | None,
    checks: tuple[str, ...],
    yes: bool,
    sandbox: str,
    sandbox_image: str | None,
    unsafe_no_sandbox: bool,
    as_json: bool,
) -> int:
    """Measure CAMPAIGN and judge it. A part of it: --only mode=ngram workload=prose,code.

    Exit code: 0 qualified, 1 not qualified, 4 inconclusive, 2 a wrong campaign or command,
    3 the engine failed before anything could be judged, 130 interrupted (--resume goes on).
    """
    from qualify.cli.prepare import prepare
    from qualify.cli.rates import estimate_for
    from qualify.evals.kinds import all_kinds
    from qualify.run.folders import find_resumable, new_run_folder

    cage = cage_of(sandbox, sandbox_image, unsafe_no_sandbox)
    filters, named = filter_words(only, more), check_names(checks)
    prepared = prepare(campaign, only=filters, attach=attach, kinds=all_kinds(cage), checks=named)
    for warning in prepared.plan.warnings:
        warn(warning)
    guess = estimate_for(prepared)
    _announce(prepared, guess)
    if not yes and not _agreed(guess):
        raise click.Abort
    name = prepared.campaign.campaign
    if out is None:
        out = find_resumable(REPORTS, name) if resume else new_run_folder(REPORTS, name)
    same = [*(("--attach", attach) if attach else ()),
            *(("--checks", ",".join(named)) if named else ()),
            *(("--only", *filters) if filters else ())]  # fmt: skip
    return measure(prepared, out, resume=resume, as_json=as_json, same=same)


def _announce(prepared: Prepared, guess: Estimate) -> None:
    load = guess.load
    about = f", about {duration(guess.seconds)}" if guess.seconds is not None else ""
    click.echo(
        f"{prepared.campaign.campaign}: {load.prompt_tokens:,} prompt tokens and "
        f"{load.output_tokens:,} output tokens in {load.requests:,} requests{about}",
        err=True,
    )


def _agreed(guess: Estimate) -> bool:
    if guess.seconds is None or guess.seconds < ASK_ABOVE_S or not is_interactive():
        return True
    return click.confirm(f"This takes about {duration(guess.seconds)}. Start?", err=True)


def measure(
    prepared: Prepared,
    out: Path,
    *,
    resume: bool,
    as_json: bool,
    quiet: bool = False,
    same: Sequence[str] = (),
) -> int:
    """Run, judge, report; the exit code. quiet: nothing is shown on stdout. same: the options
    without which the plan is another one, for who goes on."""
    from qualify.cli.build import prompt_builder, tokenizer_of
    from qualify.run.runner import run_campaign

    prepared.bench.preflight()
    _have_images(prepared)
    build = prompt_builder(prepared)
    with progress_for(as_json) as watch:
        outcome = run_campaign(
            prepared.plan,
            out=out,
            resume=resume,
            resolved=prepared.resolved,
            build=build,
            watch=watch,
            start_timeout_s=prepared.campaign.start_timeout_s,
            campaign_file=prepared.file,
            bench=prepared.bench,
            tokenizer=tokenizer_of(prepared),
        )
    from qualify.cli.report import finish

    judged = finish(outcome.folder, as_json=as_json, quiet=quiet)
    if outcome.exit_code == ExitCode.INTERRUPTED:
        words = ["qualify", "run", str(prepared.file), "--resume", "--out", str(out), *same]
        click.echo(f"Interrupted. Go on with: {shlex.join(words)}", err=True)
    return judged if outcome.exit_code is None else outcome.exit_code


def _have_images(prepared: Prepared) -> None:
    """Pull and verify before anything starts: a launch then finds its image here."""
    launches = [r for r in prepared.resolved.values() if r.container is not None]
    if launches:
        from qualify.engines.docker_launch import have_image

        for launch in {r.container.image: r for r in launches if r.container}.values():
            have_image(launch, progress=lambda text: click.echo(text, err=True))


def progress_for(as_json: bool) -> AbstractContextManager[Any]:
    """Live on a terminal, plain lines elsewhere; stdout stays free for the report or JSON."""
    from qualify.run import progress

    if as_json:
        return progress.machine(sys.stderr)
    if sys.stderr.isatty():
        return progress.live(console(err=True))
    return progress.plain(sys.stderr)
