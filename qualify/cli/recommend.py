"""`qualify recommend RUN`: which mode, for bands of work or for a mix of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qualify.cli.options import json_option
from qualify.cli.output import console, print_json


@click.command()
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option(
    "--workload",
    "mix_file",
    type=click.Path(path_type=Path),
    metavar="MIX.yaml",
    help="Your own mix: `weights` over measured cells, and `accept_length` where you know it.",
)
@json_option
def command(run: Path | None, mix_file: Path | None, as_json: bool) -> int:
    """Which mode to serve, from RUN (default: the latest): by band of work, or for a mix."""
    from qualify.cli.report import latest
    from qualify.records.store import load_run
    from qualify.report.assemble import assemble
    from qualify.report.summary import plain

    report = assemble(load_run(run if run is not None else latest(Path("reports"))))
    if mix_file is None:
        if as_json:
            print_json({"run": report.run.id, "bands": report.summary["bands"]})
        else:
            from qualify.report.terminal import which_mode

            console().print(which_mode(report))
        return 0
    answer = _answer(report, mix_file)
    if as_json:
        print_json({"run": report.run.id, **plain(answer)})
    else:
        _show(answer)
    return 0


def _answer(report: Any, mix_file: Path) -> Any:
    from qualify.analysis.mix import answer_mix
    from qualify.analysis.mixfile import read_mix

    found = report.analysis
    cells = [r.cell for r in found.recommendation if r.cell is not None]
    drafting = list(dict.fromkeys(s.side for s in found.sides if s.speculation is not None))
    mix = read_mix(mix_file, cells, drafting)
    baseline = report.run.plan.baseline
    return answer_mix(
        mix, baseline, found.margin.value, found.recommendation, found.pairs, found.sides
    )


def _show(answer: Any) -> None:
    shares = ", ".join(f"{w:.0%} {c}" for c, w in answer.weights.items())
    also = f" (or {', '.join(answer.also)}: tied)" if answer.also else ""
    open_ = "" if answer.settled or answer.mode is None else " (not settled: the default)"
    click.echo(f"{answer.mode or 'no recommendation'}{also}{open_}")
    click.echo(f"  {answer.why}")
    if answer.prefill_share is not None:
        click.echo(f"  Prefill is {answer.prefill_share:.0%} of the whole answers of this mix.")
        for side in answer.sides:
            if side.whole_answer is not None:
                click.echo(f"  Whole answers with {side.side}: {side.whole_answer:.2f}x as fast.")
    click.echo(f"  Mix: {shares}")
