"""`qualify gate RUN --baseline RUN|last-good`: did it get worse? Exit code and a short reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from qualify.cli.options import json_option
from qualify.cli.output import console, print_json

LAST_GOOD = "last-good"
GATE = "gate.json"


@click.command()
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option(
    "--baseline",
    default=LAST_GOOD,
    show_default=True,
    metavar="RUN|last-good",
    help="A run's folder, or the latest earlier run of the same campaign beside RUN that was "
    "qualified and passed its gate.",
)
@json_option
def command(run: Path | None, baseline: str, as_json: bool) -> int:
    """Hold RUN (default: the latest) against an earlier one, by the campaign's `gates:`.

    A threshold is crossed only where the interval clears it, and a check must newly fail.
    Writes gate.json beside the run. Exit code: 0 pass, 1 fail, 4 nothing could be judged.
    """
    from qualify.cli.report import latest

    folder = run if run is not None else latest(Path("reports"))
    earlier = last_good(folder) if baseline == LAST_GOOD else Path(baseline)
    result = judge(folder, earlier)
    told = write_gate(folder / GATE, result)
    if as_json:
        print_json(told)
    else:
        from qualify.report.versus import render_gate

        against = f"against {earlier}" if earlier is not None else "no earlier good run"
        click.echo(f"Gate of {folder}, {against}")
        console().print(render_gate(result))
    return int(result.exit_code)


def write_gate(file: Path, result: Any) -> dict[str, Any]:
    """The GateResult as gate.json; returns what was written."""
    from qualify.records.store import write_whole
    from qualify.report.summary import plain

    told = {**plain(result), "exit_code": int(result.exit_code)}
    text = json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False, sort_keys=True)
    write_whole(file, text.encode() + b"\n")
    return told


def judge(folder: Path, earlier: Path | None) -> Any:
    """The GateResult of a run against an earlier one (or against nothing)."""
    from qualify.analysis.gate import Judged, judge_gate
    from qualify.analysis.versus import versus
    from qualify.records.store import load_run
    from qualify.report.assemble import assemble

    now = assemble(load_run(folder))
    gates = now.run.plan.campaign.get("gates") or {}
    mine = Judged(now.run, now.verdicts, now.analysis.sides)
    if earlier is None:
        return judge_gate(mine, None, None, gates)
    before = assemble(load_run(earlier))
    margin = max(now.analysis.margin.value, before.analysis.margin.value)
    theirs = Judged(before.run, before.verdicts, before.analysis.sides)
    return judge_gate(mine, theirs, versus(before.run, now.run, margin), gates)


def last_good(folder: Path) -> Path | None:
    """The latest run beside `folder`, started before it, of the same campaign, that was
    qualified and whose own gate (if it had one) passed. None where there is none."""
    from qualify.records.store import read_json, read_object

    mine = folder.resolve()
    started = read_json(mine / "run.json").get("created")
    name = read_json(mine / "plan.json")["campaign"].get("campaign")
    found = []
    for other in mine.parent.glob("*/run.json"):
        there = other.parent
        if there == mine:
            continue
        # An unreadable file makes no run a good one.
        meta, plan, summary = (
            read_object(there / n) for n in ("run.json", "plan.json", "summary.json")
        )
        if (plan.get("campaign") or {}).get("campaign") != name:
            continue
        if (summary.get("outcome") or {}).get("exit_code") != 0:
            continue
        if read_object(there / GATE).get("exit_code", 0) != 0:
            continue
        created = meta.get("created")
        if created is not None and (started is None or created < started):
            found.append((created, there))
    return max(found)[1] if found else None
