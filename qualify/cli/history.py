"""`qualify history`: a figure over the runs so far, and any question in SQL."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qualify.cli.options import json_option
from qualify.cli.output import console, print_json

if TYPE_CHECKING:
    from qualify.history.trends import Trend


@click.group(invoke_without_command=True)
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reports"),
    show_default=True,
    help="The folder of runs; the history is kept in its folder history.",
)
@click.option(
    "--metric",
    default="tpot",
    show_default=True,
    help="tpot, ttft, throughput, accept-length, cycle or tail (p99 over median).",
)
@click.option("--campaign", help="Only this campaign.")
@click.option("--side", help="Only this mode or variant.")
@click.option("--cell", help="Only this cell, such as code@1024/c1.")
@click.option("--last", type=click.IntRange(1), default=100, show_default=True,
              help="At most so many runs of each series, the latest.")  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Also as a page.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    reports: Path,
    metric: str,
    campaign: str | None,
    side: str | None,
    cell: str | None,
    last: int,
    html: Path | None,
    as_json: bool,
) -> int:
    """A figure for each side and cell over all runs, oldest first, with its change points.

    New runs under --reports are taken in first. `qualify history sql "SELECT ..."` asks the
    tables runs, cells and records anything else.
    """
    ctx.obj = reports
    if ctx.invoked_subcommand is not None:
        return 0
    from qualify.history.trends import trends

    found = trends(_synced(reports), metric, campaign, side, cell, last)
    if html is not None:
        from qualify.history.page import page
        from qualify.records.store import write_whole

        write_whole(html, page(found).encode())
    if as_json:
        from qualify.report.summary import plain

        print_json([_dated(plain(t)) for t in found])
    elif not found:
        click.echo(f"No judged run under {reports}/ has this figure.")
    else:
        _show(found)
    if html is not None and not as_json:
        click.echo(f"\nPage: {html}")
    return 0


@command.command("sql")
@click.argument("query")
@json_option
@click.pass_obj
def sql(reports: Path, query: str, as_json: bool) -> int:
    """One query over the tables runs, cells and records; DESCRIBE shows their columns."""
    answer = _synced(reports).ask(query)
    if as_json:
        print_json([_dated(dict(zip(answer.columns, row, strict=True))) for row in answer.rows])
        return 0
    from rich.markup import escape

    from qualify.report.terminal import simple_table

    table = simple_table(*answer.columns)
    for row in answer.rows:
        table.add_row(*("" if value is None else escape(str(value)) for value in row))
    console().print(table)
    return 0


def _synced(reports: Path) -> Any:
    from qualify.history.store import History

    history = History(reports)
    taken = history.sync()
    if taken:
        click.echo(f"Taken in: {', '.join(taken)}", err=True)
    return history


def _show(found: list[Trend]) -> None:
    """A table for each campaign and machine; the sentences wrap on a narrow terminal."""
    from rich.markup import escape

    from qualify.history.page import worded
    from qualify.report.terminal import simple_table

    out = console()
    for campaign, machine in dict.fromkeys((t.campaign, t.machine) for t in found):
        out.print(f"{campaign}, {machine}" if machine else campaign, markup=False)
        table = simple_table("side", "cell")
        table.add_column(found[0].metric)
        for trend in found:
            if (trend.campaign, trend.machine) == (campaign, machine):
                table.add_row(escape(trend.side), escape(trend.cell), escape(worded(trend)))
        out.print(table)


def _dated(value: Any) -> Any:
    """Times as ISO 8601."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {k: _dated(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_dated(v) for v in value]
    return value
