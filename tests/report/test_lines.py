"""Charts over prompt length and load, and strips: what stands where."""

from __future__ import annotations

import itertools
import re

import pytest

from qualify.report.assemble import Report, assemble
from qualify.report.axes import axis
from qualify.report.lines import over_load, over_shape, strips
from tests.report.test_report import full


@pytest.fixture(scope="module")
def report() -> Report:
    return assemble(full())


def test_more_is_further_along_an_axis_and_its_ticks_are_apart() -> None:
    for log in (True, False):
        scale = axis([2.0, 50.0], 300, 20, log=log)
        places = [scale(v) for v in (2.0, 10.0, 50.0)]
        assert places == sorted(places, reverse=True)
        assert 20 <= places[2] < places[0] <= 300
        ticks = sorted(scale(t) for t in scale.ticks(30))
        assert len(ticks) > 1
        assert 20 <= ticks[0] <= ticks[-1] <= 300
        assert all(b - a >= 30 for a, b in itertools.pairwise(ticks))


def test_a_chart_marks_every_mode_at_every_length_with_its_value(report: Report) -> None:
    (found,) = [s for s in over_shape(report.analysis.sides) if s.concurrency == 1][:1]
    drawn = {measure.title: str(svg) for measure, svg in found.charts}
    mine = [s for s in report.analysis.sides
            if (s.workload, s.concurrency) == (found.workload, 1)]  # fmt: skip
    for side in mine:
        assert side.cycle is not None
        assert side.cycle.cycle_ms is not None
        told = re.search(rf"{side.side}, {side.cell}: ([\d.,]+)</title>", drawn["Step time"])
        assert told is not None
        assert float(told[1].replace(",", "")) == pytest.approx(side.cycle.cycle_ms, rel=6e-3)
    assert drawn["Step time"].count('class="line ') == len({s.side for s in mine})


def test_the_slower_of_two_modes_stands_higher_in_step_time(report: Report) -> None:
    found = over_shape(report.analysis.sides)[0]
    svg = str(next(drawn for measure, drawn in found.charts if measure.title == "Step time"))
    paths = re.findall(r'class="line s(\d)" points="[\d.]+,([\d.]+)', svg)
    heights = {int(n): float(y) for n, y in paths}
    names = list(dict.fromkeys(s.side for s in report.analysis.sides))
    first = {s.side: s.cycle.cycle_ms for s in reversed(report.analysis.sides)
             if s.workload == found.workload and s.cycle}  # fmt: skip
    slow, fast = (f(first, key=lambda name: first[name] or 0) for f in (max, min))
    assert heights[names.index(slow)] < heights[names.index(fast)]


def test_every_mark_stands_on_its_line(report: Report) -> None:
    for found in over_shape(report.analysis.sides):
        for _, drawn in found.charts:
            points = set(
                re.findall(r"[\d.]+,[\d.]+", " ".join(re.findall('points="(.*?)"', drawn)))
            )
            marks = re.findall(r'<circle class="mark s0" cx="(.*?)" cy="(.*?)"', drawn)
            assert len(marks) == drawn.count('<circle class="mark s0"')
            assert {f"{x},{y}" for x, y in marks} <= points


def test_a_strip_has_a_dot_for_every_request_that_counts(report: Report) -> None:
    for cell, svg in strips(report.run, report.analysis.sides):
        counted = sum(s.tpot_ms.n for s in report.analysis.sides if s.cell == cell)
        assert str(svg).count('class="dot') == counted


def test_load_is_drawn_only_where_several_concurrencies_were_measured(report: Report) -> None:
    several = {
        (s.workload, s.tokens)
        for s in report.analysis.sides
        for t in report.analysis.sides
        if (s.workload, s.tokens) == (t.workload, t.tokens) and s.concurrency != t.concurrency
    }
    assert len(over_load(report.analysis.sides)) == len(several)
