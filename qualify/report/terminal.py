"""The report as tables in a terminal."""

from __future__ import annotations

from collections import Counter

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from qualify.analysis.bands import MEASURED
from qualify.analysis.recommend import MIXED
from qualify.checks.verdict import Verdict, stood_idle
from qualify.printable import printable
from qualify.report import show
from qualify.report.assemble import Report
from qualify.report.quality import changes_in_words, quality_rows

STYLES = {
    "pass": "green",
    "waived": "yellow",
    "fail": "bold red",
    "inconclusive": "yellow",
    "not-run": "dim",
    "ahead": "green",
    "behind": "red",
    "tied": "cyan",
    "not enough data": "yellow",
}
WIDE = 110  # columns from which every figure has room
_OUTCOME = {"qualified": "green", "not qualified": "red", "engine failed": "red"}


def print_report(report: Report, console: Console | None = None) -> None:
    """Print the outcome, the recommendation, the pairs, the cells and what did not pass."""
    console = console or Console()
    console.print(render(report, console.width))


def render(report: Report, width: int = 100) -> RenderableType:
    parts: list[RenderableType] = [_headline(report)]
    if report.analysis.recommendation:
        parts += ["", *_recommendation(report)]
    for side, reference in dict.fromkeys((p.side, p.reference) for p in report.analysis.pairs):
        title = f"{side}: times as fast as {reference} (decode, paired by prompt)"
        parts += ["", _title(title), _pair(report, side, reference, wide=width >= WIDE)]
    if report.analysis.sides:
        title = "Cells: medians; TPOT is one user's, tok/s the whole server's"
        parts += ["", _title(title), _cells(report, wide=width >= WIDE)]
    if report.analysis.evals.results:
        parts += ["", _title("Quality: the same problems in every mode"), _quality(report)]
    parts += ["", _title("Checks"), _verdicts(report)]
    return Group(*parts)


def which_mode(report: Report) -> RenderableType:
    """The recommendation table alone."""
    return Group(*_recommendation(report))


def _title(text: str) -> Text:
    return Text(text, style="bold")


def _headline(report: Report) -> RenderableType:
    style = _OUTCOME.get(report.outcome.word, "yellow")
    text = Text()
    text.append(report.outcome.word.upper(), style=f"bold {style}")
    text.append(f"  {printable(report.outcome.sentence)}")
    return Panel(text, title=escape(printable(report.run.id)), border_style=style)


def simple_table(*columns: str, figures: tuple[str, ...] = ()) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=True)
    for column in figures:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _recommendation(report: Report) -> list[RenderableType]:
    """A block a row, not a table: its reasons are sentences, and terminals are narrow."""
    blocks: list[RenderableType] = [_title("Which mode")]
    for band in report.analysis.bands:
        line = Text(f"{band.name}: ")
        line.append(band.mode or "none", style="bold green" if band.mode else "bold red")
        if band.also:
            line.append(f" (or {', '.join(band.also)})", style="cyan")
        if band.mode and not band.settled:
            default = band.kind in (MEASURED, MIXED)
            line.append(" (not settled: the default)" if default else " (to be tested)", "yellow")
        said = " ".join(filter(None, (band.why, band.whole_answer)))
        blocks += [
            Padding(line, (0, 0, 0, 1)),
            Padding(Text(said), (0, 0, 0, 4)),
            Padding(Text(band.sure, style="dim"), (0, 0, 0, 4)),
        ]
    return blocks


def _pair(report: Report, side: str, reference: str, *, wide: bool) -> Table:
    more = ("step cost", "tokens/step", "whole answer") if wide else ()
    table = simple_table(
        "cell",
        "outcome",
        figures=("decode", "95% interval", *more),
    )
    for pair in report.analysis.pairs:
        if (pair.side, pair.reference) != (side, reference):
            continue
        finding = pair.decode
        outcome = finding.outcome if finding else (pair.refused or "not compared")
        figures = [show.ratio(finding.ratio if finding else None), show.interval(finding)]
        if wide:
            figures += [
                show.ratio(1 / pair.cycle_factor if pair.cycle_factor else None),
                show.ratio(pair.tokens_factor),
                show.ratio(pair.wall_same_prefill),
            ]
        table.add_row(escape(pair.cell), Text(outcome, style=STYLES.get(outcome, "")), *figures)
    return table


def _cells(report: Report, *, wide: bool) -> Table:
    more = ("accept length", "in flight") if wide else ()
    table = simple_table(
        "cell",
        "side",
        figures=("n", "TTFT s", "TPOT ms", "cycle ms", "tok/step", "tok/s", *more),
    )
    previous = None
    place = {cell: i for i, cell in enumerate(dict.fromkeys(s.cell for s in report.analysis.sides))}
    for row in sorted(report.analysis.sides, key=lambda s: place[s.cell]):
        spec, cycle = row.speculation, row.cycle
        whole = row.counted == row.requests and row.requests > 0
        figures: list[RenderableType] = [
            Text(
                f"{row.counted}" if whole else f"{row.counted}/{row.requests}",
                "" if whole else "red",
            ),
            show.typical(row.ttft_s),
            show.typical(row.tpot_ms),
            show.number(cycle.cycle_ms if cycle else None),
            show.number(cycle.tokens_per_step if cycle else None),
            show.number(row.throughput_tok_s),
        ]
        if wide:
            figures += [
                show.number(spec.accept_length if spec else None),
                show.number(row.average_concurrency, 2),
            ]
        name = escape(row.cell) if row.cell != previous else ""
        table.add_row(name, escape(row.side), *figures)
        previous = row.cell
    return table


def _quality(report: Report) -> RenderableType:
    table = simple_table(
        "evaluation", "mode", figures=("pass", "pass@1", "lost", "won", "p", "same")
    )
    table.add_column("changed", overflow="fold")
    previous = None
    for row in quality_rows(report.analysis.evals):
        result, pair = row.result, row.pair
        name = f"{result.eval} ({result.measure})"
        shown = escape(name) if name != previous else ""
        previous = name
        if result.passed is None or result.pass_1 is None:
            why = Text(printable(f"not-run: {result.unfinished}"), style=STYLES["not-run"])
            table.add_row(shown, escape(result.side), *("",) * 6, why)
            continue
        figures = [f"{result.passed}/{result.problems}", f"{result.pass_1:.1%}"]
        if pair is None:
            table.add_row(shown, escape(result.side), *figures)
            continue
        lost = Text(str(len(pair.regressions)), STYLES["fail"] if pair.regressions else "")
        figures_of_pair = [str(len(pair.gains)), show.number(pair.p_value), str(pair.identical)]
        changes = escape(changes_in_words(pair))
        table.add_row(shown, escape(result.side), *figures, lost, *figures_of_pair, changes)
    return table


def _verdicts(report: Report) -> RenderableType:
    table = simple_table("check", "passed")
    table.add_column("what did not pass", overflow="fold")
    by_check: dict[str, list[Verdict]] = {}
    for verdict in report.verdicts:
        by_check.setdefault(verdict.check, []).append(verdict)
    idle = [name for name, found in by_check.items() if stood_idle(found)]
    for name, found in by_check.items():
        if name in idle:
            continue
        count = Counter(v.outcome for v in found)
        open_ = [v for v in found if v.outcome != "pass"]
        told = Text()
        for verdict in open_[:4]:
            told.append(verdict.outcome, style=STYLES[verdict.outcome])
            told.append(printable(f" {verdict.subject}: {verdict.sentence}\n"))
        if len(open_) > 4:
            told.append(f"and {len(open_) - 4} more, see verdicts.json\n", style="dim")
        told.rstrip()
        table.add_row(name, f"{count['pass']}/{len(found)}", told)
    if not idle:
        return table
    left = f"Not asked for, or nothing to judge here: {', '.join(idle)} (verdicts.json says why)"
    return Group(table, Text(left, style="dim"))
