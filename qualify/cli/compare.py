"""`qualify compare RUN_A RUN_B...`: what both measured alike, and why the rest is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qualify.cli.options import json_option
from qualify.cli.output import console, print_json


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@json_option
def command(runs: tuple[Path, ...], as_json: bool) -> int:
    """Compare later RUNS with the first one: versions of an engine, engines or machines.

    Only like with like: the same prompts by hash, shape, concurrency, sampling and cache
    policy. The rest is listed with the reason. A finding, never a failure: exit code 0;
    `qualify gate` decides by thresholds.
    """
    if len(runs) < 2:
        raise click.UsageError("Two runs at least: qualify compare RUN_A RUN_B.")
    found = compare_runs(runs)
    if as_json:
        from qualify.report.summary import plain

        print_json([plain(v) for v in found])
    else:
        from qualify.report.versus import render_versus

        out = console()
        for one in found:
            out.print(render_versus(one, out.width))
    return 0


def compare_runs(folders: tuple[Path, ...]) -> list[Any]:
    """Each later run against the first, with the wider of both runs' margins."""
    from qualify.analysis.versus import versus
    from qualify.records.store import load_run
    from qualify.report.assemble import assemble

    first, *others = [assemble(load_run(folder)) for folder in folders]
    return [
        versus(first.run, o.run, max(first.analysis.margin.value, o.analysis.margin.value))
        for o in others
    ]
