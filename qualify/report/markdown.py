"""The report as Markdown, short enough for a pull request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from qualify.report import show
from qualify.report.assemble import Report

MOST = 20  # rows of one table; summary.json has all


def markdown(report: Report) -> str:
    """Outcome, recommendation, pairs and what did not pass. Text from outside is escaped."""
    run, outcome = report.run, report.outcome
    name = run.plan.campaign.get("campaign") or run.id
    parts = [
        f"## {_text(name)}: {outcome.word}",
        _text(outcome.sentence),
        _text(
            f"engine {run.plan.engine.get('name') or 'unknown'}, baseline {run.plan.baseline}, "
            f"run {run.id}, {len(run.measured())} measured requests"
        ),
    ]
    parts += _bands(report)
    parts += _pairs(report)
    parts += _open(report)
    return "\n\n".join(parts) + "\n"


def _bands(report: Report) -> list[str]:
    rows = []
    for b in report.analysis.bands:
        also = f" (or {', '.join(b.also)}: tied)" if b.also else ""
        open_ = "" if b.settled or b.mode is None else ", not settled"
        why = " ".join(filter(None, (b.why, b.whole_answer)))
        rows.append((b.name, f"{b.mode or 'none'}{also}{open_}", why, b.sure))
    if not rows:
        return ["Nothing was measured."]
    return ["### Which mode", table(("work", "mode", "why", "how sure"), rows)]


def _pairs(report: Report) -> list[str]:
    rows = []
    for p in report.analysis.pairs:
        if p.decode is None:
            rows.append((p.side, p.reference, p.cell, p.refused or "not compared", "", "", ""))
            continue
        decode = f"{show.ratio(p.decode.ratio)} {show.interval(p.decode)}".strip()
        cost = show.ratio(1 / p.cycle_factor if p.cycle_factor else None)
        tokens = show.ratio(p.tokens_factor)
        rows.append((p.side, p.reference, p.cell, p.decode.outcome, decode, cost, tokens))
    if not rows:
        return []
    head = ("mode", "against", "cell", "outcome", "decode", "a step takes", "tokens a step")
    return ["### Mode against mode", table(head, rows)]


def _open(report: Report) -> list[str]:
    counts = Counter(v.outcome for v in report.verdicts)
    told = ", ".join(f"{n} {word}" for word, n in counts.items())
    left = [v for v in report.verdicts if v.outcome in ("fail", "inconclusive", "waived")]
    left.sort(key=lambda v: v.outcome != "fail")
    lines = [f"- **{v.outcome}** {_text(v.check)}, {_text(v.subject)}: {_text(v.sentence)}"
             for v in left[:MOST]]  # fmt: skip
    if len(left) > MOST:
        lines.append(f"- and {len(left) - MOST} more, see verdicts.json")
    return ["### Checks", f"{told or 'none'}.", *(["\n".join(lines)] if lines else [])]


def table(head: Iterable[str], rows: Sequence[tuple[str, ...]], most: int = MOST) -> str:
    """Escaped; at most ``most`` rows, and how many more there are."""
    titles = list(head)
    lines = [f"| {' | '.join(titles)} |", f"| {' | '.join('---' for _ in titles)} |"]
    lines += [f"| {' | '.join(_text(c) for c in row)} |" for row in rows[:most]]
    if len(rows) > most:
        more = [f"and {len(rows) - most} more"] + [""] * (len(titles) - 1)
        lines.append(f"| {' | '.join(more)} |")
    return "\n".join(lines)


def _text(value: object) -> str:
    """One line that is text and nothing else: no HTML, link, table or emphasis in it."""
    line = re.sub(r"\s+", " ", str(value)).strip()
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#!~])", r"\\\1", line)
