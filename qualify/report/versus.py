"""Two runs beside each other, and a gate's answer, as terminal tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from qualify.analysis.gate import HELD, GateResult
from qualify.analysis.outcomes import Finding
from qualify.analysis.versus import Versus
from qualify.report import show
from qualify.report.terminal import STYLES, WIDE, simple_table


def render_versus(found: Versus, width: int = 100) -> RenderableType:
    title = Text(f"{found.after} against {found.before}", style="bold")
    title.append(" (above 1 is better than before)", style="dim")
    parts: list[RenderableType] = [title]
    if found.cells:
        wide = width >= WIDE
        more = ("TTFT", "whole", "tok/s", "accept length") if wide else ()
        table = simple_table("side", "cell", "outcome", figures=("decode", "95% interval", *more))
        for c in found.cells:
            outcome = c.decode.outcome if c.decode else "not compared"
            rest = (c.ttft, c.wall, c.throughput, c.accept_length) if wide else ()
            table.add_row(
                escape(c.side),
                escape(c.cell),
                Text(outcome, style=STYLES.get(outcome, "")),
                show.ratio(c.decode.ratio if c.decode else None),
                show.interval(c.decode),
                *(_ratio(f) for f in rest),
            )
        parts.append(table)
        scopes = dict.fromkeys(c.decode.scope for c in found.cells if c.decode)
        parts.append(Text(f"Intervals hold {' or '.join(scopes)}.", style="dim"))
        if not wide:
            parts.append(Text("--json, or a wider terminal, shows the rest.", style="dim"))
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
