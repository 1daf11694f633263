"""Two runs beside each other, and a gate's answer, as terminal tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from qualify.analysis.gate import HELD, GateResult
from qualify.analysis.outcomes import Finding
from qualify.analysis.versus import Versus
from qualify.report import show
from qualify.report.terminal import STYLES, simple_table


def render_versus(found: Versus) -> RenderableType:
    title = Text(f"{found.after} against {found.before}", style="bold")
    title.append(" (above 1 is better than before)", style="dim")
    parts: list[RenderableType] = [title]
    if found.cells:
        table = simple_table(
            "side", "cell", "decode", figures=("95%", "TTFT", "whole", "tok/s", "accepted")
        )
        for c in found.cells:
            outcome = c.decode.outcome if c.decode else "not compared"
            first = Text(show.ratio(c.decode.ratio if c.decode else None))
            first.append(f" {outcome}", style=STYLES.get(outcome, ""))
            rest = [_ratio(f) for f in (c.ttft, c.wall, c.throughput, c.accept_length)]
            table.add_row(escape(c.side), escape(c.cell), first, show.interval(c.decode), *rest)
        parts.append(table)
        scopes = dict.fromkeys(c.decode.scope for c in found.cells if c.decode)
        parts.append(Text(f"Intervals hold {' or '.join(scopes)}.", style="dim"))
    if found.unlike:
        parts.append(Text(f"Not comparable: {len(found.unlike)}", style="bold"))
        parts += [Text(f"  {u.side}, {u.cell}: {u.why}") for u in found.unlike]
    return Group(*parts)


def _ratio(finding: Finding | None) -> RenderableType:
    """Green or red only where the difference is called."""
    if finding is None:
        return show.ABSENT
    sure = finding.outcome in ("ahead", "behind")
    return Text(show.ratio(finding.ratio), STYLES[finding.outcome] if sure else "")


def render_gate(result: GateResult) -> RenderableType:
    style = {"pass": "green", "fail": "bold red"}.get(result.word, "yellow")
    head = Text(result.word.upper(), style=style)
    head.append(f"  {result.reason}", style="")
    parts: list[RenderableType] = [head]
    shown = [t for t in result.tests if t.outcome != HELD]
    parts += [Text(f"  {t.outcome}: {t.sentence}", style="dim") for t in shown[:20]]
    if len(shown) > 20:
        parts.append(Text(f"  and {len(shown) - 20} more (--json shows all)", style="dim"))
    if result.unlike:
        parts.append(Text(f"  {len(result.unlike)} not comparable:", style="dim"))
        parts += [Text(f"    {u.side}, {u.cell}: {u.why}", "dim") for u in result.unlike[:10]]
    return Group(*parts)
