"""`qualify report RUN`: judge a run again from its records, and show it."""

from __future__ import annotations

from pathlib import Path

import click

from qualify.cli.options import json_option
from qualify.cli.output import console, print_json


@click.command()
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option("--open", "open_", is_flag=True, help="Show report.html in a browser.")
@json_option
def command(run: Path | None, open_: bool, as_json: bool) -> int:
    """Write verdicts.json, summary.json and report.html of RUN (default: the latest) again.

    The exit code is the run's: 0 qualified, 1 not qualified, 4 inconclusive, 3 engine failed.
    """
    folder = run if run is not None else latest(Path("reports"))
    code = finish(folder, as_json=as_json)
    if open_:
        click.launch((folder / "report.html").resolve().as_uri())
    return code


def finish(folder: Path, *, as_json: bool) -> int:
    """Judge, write and show; returns the outcome's exit code."""
    from qualify.records.store import load_run
    from qualify.report.assemble import assemble
    from qualify.report.build import write_report

    report = assemble(load_run(folder))
    page = write_report(report)
    if as_json:
        print_json({**report.summary, "folder": str(folder), "report": str(page)})
    else:
        from qualify.report.terminal import print_report

        print_report(report, console())
        click.echo(f"\nReport: {page}")
    return int(report.outcome.exit_code)


def latest(reports: Path) -> Path:
    """The run that was started last. Raises UsageError where there is none."""
    from qualify.errors import UsageError

    runs = [p.parent for p in reports.glob("*/run.json")]
    if not runs:
        raise UsageError(
            f"There is no run under {reports}/.",
            "Start one with `qualify run campaigns/quickstart.yaml`, or name its folder.",
        )
    return max(runs, key=lambda folder: (folder / "run.json").stat().st_mtime)
