"""`qualify nightly CAMPAIGN...`: run, gate, report, history, and one exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qualify.cli.gate import GATE, LAST_GOOD
from qualify.cli.options import json_option
from qualify.cli.output import print_json
from qualify.cli.sandbox_options import cage_of, sandbox_options
from qualify.errors import ExitCode, QualifyError

if TYPE_CHECKING:
    from qualify.evals.code import Cage

REPORTS = Path("reports")
# The worst first: what a person must look at before anything else decides the night.
_WORST = (
    ExitCode.INTERRUPTED, ExitCode.INTERNAL, ExitCode.NOT_QUALIFIED, ExitCode.ENGINE_FAILED,
    ExitCode.USAGE, ExitCode.INCONCLUSIVE, ExitCode.QUALIFIED,
)  # fmt: skip


@dataclass(frozen=True)
class Night:
    """What one campaign came to. ``gate``: its word and reason; None where it was not judged."""

    campaign: str
    folder: str | None
    exit_code: int
    gate: str | None
    reason: str


@click.command()
@click.argument("campaigns", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    default=REPORTS,
    show_default=True,
    help="Where runs and the history are kept from night to night.",
)
@click.option(
    "--baseline",
    default=LAST_GOOD,
    show_default=True,
    metavar="RUN|last-good",
    help="What each campaign's run is held against.",
)
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE",
              help="Append what happened, for a job's summary page.")  # fmt: skip
@sandbox_options
@json_option
def command(
    campaigns: Sequence[Path],
    reports: Path,
    baseline: str,
    markdown: Path | None,
    sandbox: str,
    sandbox_image: str | None,
    unsafe_no_sandbox: bool,
    as_json: bool,
) -> int:
    """Measure each campaign, hold it against the last good run, and take it into the history.

    One campaign that fails never stops the next. Exit code, the worst of all: 130 interrupted,
    1 a gate or a check fails, 3 an engine failed, 2 a campaign is wrong, 4 nothing could be
    judged, 0 all is well.
    """
    cage = cage_of(sandbox, sandbox_image, unsafe_no_sandbox)
    if baseline != LAST_GOOD:  # before a night is spent on it
        from qualify.records.store import load_run

        load_run(Path(baseline))
    nights: list[Night] = []
    for campaign in campaigns:
        night = _one(campaign, reports, baseline, cage, as_json)
        nights.append(night)
        if not as_json:
            click.echo(f"{night.campaign}: {night.gate or 'not judged'} ({night.reason})")
        if night.exit_code == ExitCode.INTERRUPTED:
            break
    _take_in(reports)
    if markdown is not None:
        with markdown.open("a", encoding="utf-8") as file:
            file.write(_markdown(nights))
    if as_json:
        from qualify.report.summary import plain

        print_json([plain(n) for n in nights])
    codes = {n.exit_code for n in nights}
    return int(next((c for c in _WORST if c in codes), max(codes)))


def _one(campaign: Path, reports: Path, baseline: str, cage: Cage, as_json: bool) -> Night:
    """Run and gate one campaign. Its own faults are its result, not the night's end."""
    folder: Path | None = None
    try:
        from qualify.cli.prepare import prepare
        from qualify.cli.run import measure
        from qualify.evals.kinds import all_kinds
        from qualify.run.folders import new_run_folder

        prepared = prepare(campaign, kinds=all_kinds(cage))
        folder = new_run_folder(reports, prepared.campaign.campaign)
        code = measure(prepared, folder, resume=False, as_json=as_json, quiet=True)
        if code in (ExitCode.INTERRUPTED, ExitCode.ENGINE_FAILED):
            said = "interrupted" if code == ExitCode.INTERRUPTED else "the engine failed"
            return Night(str(campaign), str(folder), code, None, said)
        return _gated(campaign, folder, baseline, code)
    except QualifyError as error:
        where = str(folder) if folder is not None and folder.exists() else None
        return Night(str(campaign), where, int(error.exit_code), None, str(error))
    except Exception as error:  # a fault of ours in one campaign must not cost the others
        where = str(folder) if folder is not None and folder.exists() else None
        said = f"qualify itself failed: {type(error).__name__}: {error}"
        return Night(str(campaign), where, int(ExitCode.INTERNAL), None, said)


def _gated(campaign: Path, folder: Path, baseline: str, code: int) -> Night:
    from qualify.cli.gate import judge, last_good, write_gate

    earlier = last_good(folder) if baseline == LAST_GOOD else Path(baseline)
    result = judge(folder, earlier)
    write_gate(folder / GATE, result)
    worst = next(c for c in _WORST if c in (code, int(result.exit_code)))
    reason = result.reason
    if code == ExitCode.NOT_QUALIFIED and not result.new_failures:
        reason = f"The run itself is not qualified, as before. {reason}"
    return Night(str(campaign), str(folder), int(worst), result.word, reason)


def _take_in(reports: Path) -> None:
    """A night without DuckDB is still a night: its runs are taken in later."""
    from qualify.history.store import History

    try:
        History(reports).sync()
    except QualifyError as error:
        click.echo(f"The history was not brought up to date: {error}", err=True)


def _markdown(nights: Sequence[Night]) -> str:
    from qualify.report.markdown import table

    rows = [(n.campaign, n.gate or "not judged", str(n.exit_code), n.reason) for n in nights]
    return table(("campaign", "gate", "exit code", "why"), rows) + "\n\n"
