"""The same directions and verdicts without a measured figure, for those who may not publish any.

What the campaign says (prompt lengths, concurrencies, how many prompts) stays; what was measured
becomes a word. Sentences of the full report carry figures, so none of them is taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qualify.analysis.bands import Band
from qualify.analysis.crossover import Crossover
from qualify.report.assemble import Report
from qualify.report.html import by_check
from qualify.report.markdown import table
from qualify.report.pages import environment, own


@dataclass(frozen=True)
class Told:
    """The tables of the page: heads and rows of plain words."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def told(report: Report) -> list[Told]:
    """Every table that has a row."""
    analysis = report.analysis
    pairs = [
        (p.side, p.reference, p.cell, p.decode.outcome if p.decode else "not compared")
        for p in analysis.pairs
    ]
    crossings = [(c.side, c.reference, _work(c), _crossing(c)) for c in analysis.crossovers
                 if len(c.points) > 1]  # fmt: skip
    judged = [(group.name, group.worst, group.told) for group in by_check(report.verdicts)]
    found = [
        Told("Which mode", ("work", "mode", "how sure"), tuple(map(_band, analysis.bands))),
        Told("Mode against mode", ("mode", "against", "cell", "outcome"), tuple(pairs)),
        Told("Over prompt length", ("mode", "against", "work", "what"), tuple(crossings)),
        Told("Quality", ("evaluation", "mode", "against"), tuple(_evals(report))),
        Told("Checks", ("check", "outcome", "verdicts"), tuple(judged)),
    ]
    return [t for t in found if t.rows]


def qualitative_markdown(report: Report) -> str:
    """For a pull request or a post."""
    parts = [f"## {_name(report)}: {report.outcome.word}", _NOTE]
    for one in told(report):
        parts += [f"### {one.title}", table(one.head, one.rows, len(one.rows))]
    return "\n\n".join(parts) + "\n"


def qualitative_html(report: Report) -> str:
    """One self-contained page, as ``html`` makes them."""
    style, style_hash = own("style.css")
    return (
        environment()
        .get_template("qualitative.html.j2")
        .render(
            name=_name(report),
            word=report.outcome.word,
            engine=report.run.plan.engine.get("name"),
            note=_NOTE,
            tables=told(report),
            style=style,
            style_hash=style_hash,
        )
    )


_NOTE = "Directions and verdicts only: every measured figure is left out on purpose."


def _name(report: Report) -> str:
    return str(report.run.plan.campaign.get("campaign") or report.run.id)


def _band(band: Band) -> tuple[str, str, str]:
    also = f" (or {', '.join(band.also)}: tied)" if band.also else ""
    open_ = "" if band.settled or band.mode is None else ", not settled"
    return band.name, f"{band.mode or 'none'}{also}{open_}", _sure(band)


def _sure(band: Band) -> str:
    """Only what is said of scope; how many prompts is the campaign's own choice."""
    return band.sure.split(":")[0]


def _work(found: Crossover) -> str:
    several = f", {found.concurrency} at once" if found.concurrency > 1 else ""
    return f"{found.workload}{several}"


def _crossing(found: Crossover) -> str:
    shapes = [p.tokens for p in found.points]
    if found.bracket is not None:
        first, last = found.bracket
        return f"the lead changes between {first:,} and {last:,} tokens"
    if len({p.finding.outcome for p in found.points}) == 1:
        return f"{found.points[0].finding.outcome} from {shapes[0]:,} to {shapes[-1]:,} tokens"
    return ", ".join(f"{p.finding.outcome} at {p.tokens:,}" for p in found.points)


def _evals(report: Report) -> Sequence[tuple[str, str, str]]:
    rows = []
    for p in report.analysis.evals.pairs:
        word = "regressions" if p.regressions else "no regression"
        rows.append((p.eval, p.side, word + (", and gains" if p.gains else "")))
    return rows
