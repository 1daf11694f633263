"""The report's charts as PNG files, drawn by resvg from the page's own SVG and colours."""

from __future__ import annotations

import re
from pathlib import Path

from qualify.errors import UsageError
from qualify.report import charts, lines
from qualify.report.assemble import Report
from qualify.report.html import comparisons
from qualify.report.pages import TEMPLATES

FAMILIES = "'DejaVu Sans', 'Noto Sans', 'Liberation Sans', Arial"
SCALE = 2  # pixels a unit: sharp on any screen


def named_charts(report: Report) -> dict[str, str]:
    """File name without suffix -> SVG, for every chart that the page draws from figures."""
    found: dict[str, str] = {}
    for c in comparisons(report):
        pair = f"{c.side}-against-{c.reference}"
        found[f"ratio-{pair}"] = charts.forest(c.pairs)
        for curve in c.curves:
            name = f"crossover-{pair}-{curve.workload}-c{curve.concurrency}"
            found[name] = charts.curve(curve)
    for shape in lines.over_shape(report.analysis.sides):
        for measure, drawn in shape.charts:
            found[f"{measure.title}-{shape.workload}-c{shape.concurrency}"] = drawn
    for name, drawn in lines.over_load(report.analysis.sides):
        found[f"load-{name}"] = drawn
    for name, drawn in lines.strips(report.run, report.analysis.sides):
        found[f"tpot-{name}"] = drawn
    return {_plain(name): str(svg) for name, svg in found.items() if svg}


def write_pngs(report: Report, folder: Path) -> list[Path]:
    """One PNG a chart, light. Raises UsageError without resvg, or without a font to write with."""
    try:
        import resvg_py
    except ImportError:
        raise UsageError(
            "PNG charts need resvg, which is not installed.",
            "Install it with: pip install 'qualify[png]'",
        ) from None
    fonts = _fonts()
    if not fonts:
        raise UsageError(
            "No font was found to write the charts' text with.",
            "Install one, such as Debian's fonts-dejavu-core.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    css = _resolved((TEMPLATES / "style.css").read_text("utf-8"))
    written = []
    for name, svg in named_charts(report).items():
        styled = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        data = resvg_py.svg_to_bytes(
            svg_string=styled,
            style_sheet=css,
            zoom=SCALE,
            background="#ffffff",
            font_files=fonts,
        )
        path = folder / f"{name}.png"
        path.write_bytes(bytes(data))
        written.append(path)
    return written


def _fonts() -> list[str]:
    places = (Path("/usr/share/fonts"), Path.home() / ".fonts", Path("/Library/Fonts"))
    wanted = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf")
    return [str(p) for place in places if place.is_dir() for w in wanted for p in place.rglob(w)]


def _resolved(css: str) -> str:
    """The light theme's rules for drawings, with variables put in: resvg knows none."""
    light = css[: css.index("@media (prefers-color-scheme: dark)")]
    values = dict(re.findall(r"(--[\w-]+):\s*([^;]+);", light))
    rules = re.findall(r"(svg[^{}]*)\{([^{}]*)\}", css)
    text = "\n".join(f"{selector.strip()} {{{body}}}" for selector, body in rules)
    text = re.sub(r"var\((--[\w-]+)\)", lambda m: values[m[1]], text)
    return re.sub(r"font: (\d+px)[^;]*;", rf"font-size: \1; font-family: {FAMILIES};", text)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
