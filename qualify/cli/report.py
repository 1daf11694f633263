"""`qualify report RUN`: judge a run again from its records, and show it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qualify.cli.options import json_option
from qualify.cli.output import console, print_json

if TYPE_CHECKING:
    from qualify.report.assemble import Report


@click.command()
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option("--open", "open_", is_flag=True, help="Show report.html in a browser.")
@click.option("--junit", metavar="FILE", help="Also JUnit XML, a test case a verdict; - is stdout.")
@click.option("--markdown", metavar="FILE", help="Also Markdown, for a pull request; - is stdout.")
@click.option("--csv", metavar="FILE", help="Also the records as CSV; - is stdout.")
@click.option("--parquet", metavar="FILE", help="Also the records as Parquet; - is stdout.")
@click.option("--png", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Also every chart as a PNG file in DIR.")  # fmt: skip
@click.option("--qualitative", is_flag=True,
              help="Directions and verdicts without any measured figure: qualitative.html, and "
              "--markdown likewise.")  # fmt: skip
@json_option
def command(
    run: Path | None,
    open_: bool,
    junit: str | None,
    markdown: str | None,
    csv: str | None,
    parquet: str | None,
    png: Path | None,
    qualitative: bool,
    as_json: bool,
) -> int:
    """Write verdicts.json, summary.json and report.html of RUN (default: the latest) again.

    The exit code is the run's: 0 qualified, 1 not qualified, 4 inconclusive, 3 engine failed.
    """
    folder = run if run is not None else latest(Path("reports"))
    also = {"junit": junit, "markdown": markdown, "csv": csv, "parquet": parquet}
    wanted = {kind: target for kind, target in also.items() if target is not None}
    if [*wanted.values(), *(["-"] if as_json else [])].count("-") > 1:
        raise click.UsageError("Only one format can go to stdout. Give the others a file's name.")
    if qualitative:
        return _qualitative(folder, wanted, png=png, open_=open_, as_json=as_json)
    code = finish(folder, as_json=as_json, also=wanted, png=png)
    if open_:
        click.launch((folder / "report.html").resolve().as_uri())
    return code


def _qualitative(
    folder: Path, also: Mapping[str, str], *, png: Path | None, open_: bool, as_json: bool
) -> int:
    """The page without figures. Raises UsageError for a format that is made of figures."""
    from qualify.errors import UsageError
    from qualify.records.store import load_run, write_whole
    from qualify.report.assemble import assemble
    from qualify.report.qualitative import qualitative_html, qualitative_markdown

    refused = [kind for kind in also if kind != "markdown"]
    refused += [name for name, given in (("png", png), ("json", as_json)) if given]
    if refused:
        raise UsageError(
            f"--{refused[0]} is made of figures, and --qualitative leaves every figure out.",
            "Leave one of the two out.",
        )
    report = assemble(load_run(folder))
    page = folder / "qualitative.html"
    write_whole(page, qualitative_html(report).encode())
    text = qualitative_markdown(report)
    if "markdown" in also and also["markdown"] != "-":
        _put(also["markdown"], "markdown", text.encode())
    else:
        click.echo(text)
    if also.get("markdown") != "-":
        click.echo(f"Page: {page}")
    if open_:
        click.launch(page.resolve().as_uri())
    return int(report.outcome.exit_code)


def finish(
    folder: Path,
    *,
    as_json: bool,
    also: Mapping[str, str] | None = None,
    png: Path | None = None,
    quiet: bool = False,
) -> int:
    """Judge, write and show (unless quiet); returns the outcome's exit code.

    also: format -> file (or "-", which then stands on stdout instead of the tables).
    """
    from qualify.records.store import load_run
    from qualify.report.assemble import assemble
    from qualify.report.build import write_report

    report = assemble(load_run(folder))
    page = write_report(report)
    for kind, target in (also or {}).items():
        _write(report, kind, target)
    if png is not None:
        from qualify.report.png import write_pngs

        click.echo(f"{len(write_pngs(report, png))} charts: {png}", err=True)
    if quiet or "-" in (also or {}).values():
        return int(report.outcome.exit_code)
    if as_json:
        print_json({**report.summary, "folder": str(folder), "report": str(page)})
    else:
        from qualify.report.terminal import print_report

        print_report(report, console())
        click.echo(f"\nReport: {page}")
    return int(report.outcome.exit_code)


def _write(report: Report, kind: str, target: str) -> None:
    """One more format of a report. Raises UsageError where the file cannot be written."""
    data = _made(report, kind)
    if target == "-":
        sys.stdout.buffer.write(data)
    else:
        _put(target, kind, data)


def _put(target: str, kind: str, data: bytes) -> None:
    from qualify.errors import UsageError

    try:
        Path(target).write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {(error.strerror or str(error)).lower()}.",
            f"Give --{kind} a file in a folder that exists.",
        ) from None


def _made(report: Report, kind: str) -> bytes:
    from qualify.records.codec import utf8

    if kind == "junit":
        from qualify.report.junit import junit

        return junit(report.run.id, report.verdicts)
    if kind == "markdown":
        from qualify.report.markdown import markdown

        return utf8(markdown(report))
    if kind == "parquet":
        from qualify.report.parquet import records_parquet

        return records_parquet(report.run.records)
    from qualify.report.csv import records_csv

    return utf8(records_csv(report.run.records))


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
