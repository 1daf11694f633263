"""`qualify doctor`: facts about this machine, each with a cure where one is needed."""

from __future__ import annotations

from pathlib import Path

import click

from qualify.cli.options import json_option
from qualify.cli.output import console, print_json
from qualify.errors import ExitCode

REPORTS = Path("reports")
_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command()
@click.option("--sweep", is_flag=True, help="End what dead runs left running.")
@json_option
def command(sweep: bool, as_json: bool) -> int:
    """Is this machine ready, and is anything left running? Exit code 1 when something fails."""
    from dataclasses import asdict

    from qualify.doctor.containers import docker_findings, sweep_docker
    from qualify.doctor.engines import engine_findings
    from qualify.doctor.host import host_findings
    from qualify.doctor.leftovers import leftover_findings, sweep_all

    findings = [
        *((*sweep_all(REPORTS), *sweep_docker()) if sweep else ()),
        *host_findings(),
        *engine_findings(),
        *docker_findings(),
        *leftover_findings(REPORTS),
    ]
    failed = any(f.level == "fail" for f in findings)
    if as_json:
        print_json({"ready": not failed, "findings": [asdict(f) for f in findings]})
    else:
        from rich.markup import escape

        out = console()
        width = max(len(f.name) for f in findings)
        for f in findings:
            level = f"[{_STYLE[f.level]}]{f.level:<4}[/]"
            out.print(f"{level} {f.name:<{width}}  {escape(f.says)}", soft_wrap=True)
            if f.remedy and f.level != "ok":
                out.print(f"     {'':<{width}}  {escape(f.remedy)}", soft_wrap=True)
    return ExitCode.NOT_QUALIFIED if failed else ExitCode.QUALIFIED
