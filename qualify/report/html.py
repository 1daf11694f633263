"""report.html: one self-contained file, no network, everything from outside escaped."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qualify.analysis import words
from qualify.analysis.pairs import PairResult
from qualify.analysis.sides import SideCell
from qualify.checks.verdict import Verdict, stood_idle
from qualify.records.schema import LaunchRecord
from qualify.report import charts, heat, lines, show
from qualify.report.assemble import Report
from qualify.report.pages import environment, own
from qualify.report.quality import quality_rows

_ORDER = {"fail": 0, "inconclusive": 1, "not-run": 2, "waived": 3, "pass": 4}
_LONG = 4000  # characters of one evidence that the page shows; verdicts.json has all


def render_html(report: Report) -> str:
    """The page as text. The same report gives the same bytes."""
    env = environment()
    env.filters.update(
        number=show.number,
        seconds=show.seconds,
        typical=show.typical,
        spread=show.spread,
        ratio=show.ratio,
        interval=show.interval,
        percent=show.percent,
        reach=show.reach,
        evidence=evidence_text,
        anchor=anchor,
    )
    style, style_hash = own("style.css")
    script, script_hash = own("page.js")
    run = report.run
    return env.get_template("report.html.j2").render(
        report=report,
        run=run,
        plan=run.plan,
        analysis=report.analysis,
        outcome=report.outcome,
        style=style,
        style_hash=style_hash,
        script=script,
        script_hash=script_hash,
        glance=glance(report),
        scopes=sorted({p.decode.scope for p in report.analysis.pairs if p.decode}),
        comparisons=comparisons(report),
        cells=cells_by_id(report.analysis.sides),
        verdicts=by_check(report.verdicts),
        parity=[v for v in report.verdicts if v.check == "parity"],
        evals=quality_rows(report.analysis.evals),
        heat_maps=heat.heat_maps(report.analysis.evals.recall),
        proofs=[v for v in report.verdicts if v.check == "retrieval" and v.outcome != "pass"]
        + [v for v in report.verdicts if v.check == "retrieval" and v.outcome == "pass"],
        heat=heat.draw,
        launches=provenance(report),
        repeat=repeat_commands(report),
        ledger=ledger(run.plan.campaign.get("ledger")),
        ignoring_eos=any(
            c.sampling.ignore_eos and c.until == "length"
            for x in run.plan.launches
            for c in x.cells
        ),
        forest=charts.forest,
        curve=charts.curve,
        bars=charts.bars,
        shapes=lines.over_shape(report.analysis.sides),
        loads=lines.over_load(report.analysis.sides),
        strips=lines.strips(run, report.analysis.sides),
    )


def glance(report: Report) -> str | None:
    """Which mode where, in one sentence; None where nothing was measured."""
    rows = [
        (r.cell, r.mode, r.settled) for r in report.analysis.recommendation if r.cell is not None
    ]
    return words.at_a_glance(rows) if rows and report.run.measured() else None


@dataclass(frozen=True)
class Comparison:
    """One side against one reference, over all cells."""

    side: str
    reference: str
    pairs: tuple[PairResult, ...]
    curves: tuple[Any, ...]


def comparisons(report: Report) -> list[Comparison]:
    names = dict.fromkeys((p.side, p.reference) for p in report.analysis.pairs)
    return [
        Comparison(
            side,
            reference,
            tuple(p for p in report.analysis.pairs if (p.side, p.reference) == (side, reference)),
            tuple(
                c
                for c in report.analysis.crossovers
                if (c.side, c.reference) == (side, reference) and len(c.points) > 1
            ),
        )
        for side, reference in names
    ]


def cells_by_id(sides: Sequence[SideCell]) -> dict[str, list[SideCell]]:
    """Rows grouped by cell, in plan order."""
    groups: dict[str, list[SideCell]] = {}
    for row in sides:
        groups.setdefault(row.cell, []).append(row)
    return groups


@dataclass(frozen=True)
class CheckGroup:
    """All verdicts of one check; `worst` decides how it is shown."""

    name: str
    verdicts: tuple[Verdict, ...]
    open: tuple[Verdict, ...]  # those that did not pass, the worst first
    passed: tuple[Verdict, ...]
    worst: str
    idle: bool

    @property
    def told(self) -> str:
        """`2 pass, 1 not-run`"""
        counts: Counter[str] = Counter(v.outcome for v in self.verdicts)
        return ", ".join(f"{counts[o]} {o}" for o in reversed(_ORDER) if counts[o])


def by_check(verdicts: Sequence[Verdict]) -> list[CheckGroup]:
    """Checks with something to say first, those that stood idle last."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.check, []).append(verdict)
    found = []
    for name, mine in groups.items():
        ordered = sorted(mine, key=lambda v: _ORDER[v.outcome] + (0 if v.demanded else 0.5))
        open_ = tuple(v for v in ordered if v.outcome != "pass")
        passed = tuple(v for v in mine if v.outcome == "pass")
        demanded = [v.outcome for v in ordered if v.demanded]
        worst = demanded[0] if demanded else ordered[0].outcome
        found.append(CheckGroup(name, tuple(mine), open_, passed, worst, stood_idle(mine)))
    return sorted(found, key=lambda g: (g.idle, _ORDER[g.worst]))


@dataclass(frozen=True)
class Started:
    """A launch attempt with what it said of itself, flattened for a table."""

    record: LaunchRecord
    facts: tuple[tuple[str, str], ...]


def provenance(report: Report) -> list[Started]:
    """Every started or failed launch, with the facts that a reader asks for first."""
    found = []
    for entry in report.run.launches:
        if entry.status == "stopped":
            continue
        origin = entry.origin
        said = origin.get("info")
        info = said if isinstance(said, dict) else {}
        argv = origin.get("argv")
        facts = {
            "engine": _joined(origin.get("engine"), origin.get("engine_version")),
            "package": _package(origin.get("package")),
            "image": _text(origin.get("image")),
            "model": _text(info.get("model")),
            "context": _text(info.get("context_tokens")),
            "command": shlex.join(map(str, argv)) if isinstance(argv, list) else None,
            "url": _text(origin.get("url")),
        }
        shown = tuple((k, v) for k, v in facts.items() if v)
        found.append(Started(entry, shown))
    return found


def repeat_commands(report: Report) -> list[tuple[str, str]]:
    """(cell id, command) that measures the cell again in every mode, from the run's own files."""
    folder = report.run.folder
    commands = {}
    for cell in (c for launch in report.run.plan.launches for c in launch.cells):
        only = (
            f"workload={cell.workload}",
            f"tokens={cell.prompts.tokens}",
            f"concurrency={cell.concurrency}",
        )
        campaign = shlex.quote(f"{folder}/campaign.yaml")
        commands[cell.id] = f"qualify run {campaign} --only {shlex.join(only)}"
    return list(commands.items())


def ledger(stored: Any) -> list[dict[str, Any]]:
    """The campaign's experiment ledger as rows; a bare question is one row."""
    if isinstance(stored, str):
        return [{"experiment": stored, "observation": None, "disposition": None}]
    return [row for row in stored or [] if isinstance(row, dict)]


def evidence_text(evidence: dict[str, Any]) -> str:
    """Evidence as readable JSON, cut at a length that a page can hold."""
    text = json.dumps(evidence, ensure_ascii=False, indent=1, default=str)
    return text if len(text) <= _LONG else text[:_LONG] + "\n... (all of it is in verdicts.json)"


def anchor(name: str) -> str:
    """An id for links: letters, digits and dashes only."""
    return "c-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in name)


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _joined(*values: Any) -> str | None:
    return " ".join(str(v) for v in values if v) or None


def _package(value: Any) -> str | None:
    return _joined(value.get("name"), value.get("version")) if isinstance(value, dict) else None
