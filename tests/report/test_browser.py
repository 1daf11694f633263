"""The page in a real browser: quiet, narrow, dark, accessible; its tables sort, filter and copy;
what it shows is what summary.json holds."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qualify.report.assemble import Report, assemble
from qualify.report.html import render_html
from tests.report.test_report import full

MISSING = "\u2013"
IN_CI = os.environ.get("CI") == "true"  # there both are installed, and their absence fails
CHROMIUM = shutil.which("chromium")
if not IN_CI:
    pytest.importorskip("playwright.sync_api", reason="needs playwright")
    pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
playwright = importlib.import_module("playwright.sync_api")
axe = importlib.import_module("axe_playwright_python.sync_playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None and not IN_CI, reason="needs Debian's chromium")


@pytest.fixture(scope="module")
def report() -> Report:
    return assemble(full())


@pytest.fixture(scope="module")
def page_file(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render_html(report), "utf-8")
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, page_file: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    opened = context.new_page()
    opened.goto(page_file.as_uri())
    yield opened
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_the_page_is_quiet_asks_for_nothing_and_fits(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("request", lambda r: asked.append(r.url))
    page.goto(page_file.as_uri())
    # Style sheet and script passed the page's own policy.
    assert said == []
    assert asked == [page_file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.locator(".tools button").count() > 0
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(browser: Any, page_file: Path, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []
    context.close()


def test_what_the_page_shows_is_what_the_summary_holds(page: Any, report: Report) -> None:
    sides = json.loads(json.dumps(report.summary))["sides"]
    rows = page.locator("#cells > .wide tbody tr").all()
    assert len(rows) == len(sides)
    for row, side in zip(rows, sides, strict=True):
        cells = [c.inner_text().split("\n")[0].strip() for c in row.locator("th, td").all()]
        assert cells[:2] == [side["cell"], side["side"]]
        assert float(cells[4].replace(",", "")) == pytest.approx(
            side["tpot_ms"]["median"], rel=6e-3
        )
    outcomes = [p["decode"]["outcome"] for p in report.summary["pairs"] if p["decode"]]
    assert page.locator("#pairs .badge").all_inner_texts() == outcomes


def test_a_table_sorts_by_a_click_both_ways_and_what_is_missing_stays_last(page: Any) -> None:
    table = page.locator("#cells > .wide table").first
    head = table.locator("th", has_text="TPOT").locator("button")

    def shown() -> list[str]:
        cells = table.locator("tbody tr td:nth-child(5)").all()
        return [c.inner_text().split("\n")[0].strip() for c in cells]

    before = shown()
    head.click()
    up = shown()
    assert table.locator("th[aria-sort=ascending]").count() == 1
    head.click()
    down = shown()
    assert sorted(up) == sorted(before) == sorted(down)
    values = [float(v.replace(",", "")) for v in up if v != MISSING]
    assert values == sorted(values)
    assert len(set(values)) > 1
    assert [float(v.replace(",", "")) for v in down if v != MISSING] == sorted(values, reverse=True)
    for order in (up, down):
        first_missing = order.index(MISSING) if MISSING in order else len(order)
        assert set(order[first_missing:]) <= {MISSING}


def test_a_filter_keeps_the_rows_that_say_all_its_words(page: Any, report: Report) -> None:
    section = page.locator("#cells")
    side = report.summary["sides"][0]
    section.locator("input[type=search]").first.fill(f"{side['side']} {side['workload']}")
    rows = section.locator("> .wide tbody tr:visible").all_inner_texts()
    wanted = [
        s
        for s in report.summary["sides"]
        if side["side"] in (s["side"], s["cell"]) and side["workload"] in s["cell"]
    ]
    assert 0 < len(rows) < len(report.summary["sides"])
    assert len(rows) == len(wanted)
    told = section.locator("output").first.inner_text()
    assert told == f"{len(rows)} of {len(report.summary['sides'])}"


def test_a_table_is_copied_as_csv_with_its_small_print_in_columns_of_its_own(
    browser: Any, page_file: Path, report: Report
) -> None:
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.locator("#cells .tools button").first.click()
    text = page.evaluate("navigator.clipboard.readText()")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [r["cell"] for r in rows] == [s["cell"] for s in report.summary["sides"]]
    assert all(None not in r for r in rows)
    median = float(rows[0]["TPOT ms"].replace(",", ""))
    assert median == pytest.approx(report.summary["sides"][0]["tpot_ms"]["median"], rel=6e-3)
    assert "TPOT ms, more" in rows[0]
    assert "one user tokens/s" in rows[0]
    context.close()


def test_without_a_script_the_page_says_the_same(browser: Any, page_file: Path) -> None:
    texts = []
    for script in (True, False):
        context = browser.new_context(java_script_enabled=script)
        page = context.new_page()
        page.goto(page_file.as_uri())
        texts.append(page.locator("#cells > .wide tbody").inner_text())
        context.close()
    assert texts[0] == texts[1]
