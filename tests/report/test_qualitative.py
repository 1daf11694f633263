"""Directions and verdicts without figures, and charts as pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from qualify.report.assemble import Report, assemble
from qualify.report.html import by_check
from qualify.report.png import named_charts, write_pngs
from qualify.report.qualitative import qualitative_html, qualitative_markdown
from tests.report.test_report import full


@pytest.fixture(scope="module")
def report() -> Report:
    return assemble(full())


def measured(value: Any) -> list[float]:
    """Every number below the figures of a summary that came out of a measurement."""
    if isinstance(value, float):
        return [value]
    if isinstance(value, dict):
        return [n for v in value.values() for n in measured(v)]
    if isinstance(value, list):
        return [n for v in value for n in measured(v)]
    return []


def test_no_measured_figure_is_left_in_either_form(report: Report) -> None:
    text = re.sub(r"<style>.*?</style>", "", qualitative_html(report), flags=re.S)
    shown = set(re.findall(r"\d+\.\d+", text + qualitative_markdown(report)))
    assert shown == set(), "a figure with a decimal point is a measured one"
    assert "\u00d7" not in text
    assert "%" not in re.sub(r"<[^>]*>", "", text)
    assert len(measured(report.summary["sides"])) > 10


def test_directions_and_verdicts_are_those_of_the_full_report(report: Report) -> None:
    text = qualitative_markdown(report)
    for pair in report.analysis.pairs:
        outcome = pair.decode.outcome if pair.decode else "not compared"
        assert f"| {pair.side} | {pair.reference} | {pair.cell} | {outcome} |" in text
    assert report.outcome.word in text.splitlines()[0]
    for group in by_check(report.verdicts):
        assert f"| {group.name} | {group.worst} | {group.told} |" in text


def test_every_chart_is_a_picture_with_something_on_it(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    files = write_pngs(report, tmp_path / "charts")
    assert {f.stem for f in files} == set(named_charts(report))
    assert any(f.name.startswith("ratio-") for f in files)
    for file in files:
        data = file.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) > 2000
