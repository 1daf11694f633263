"""The page in a real browser: no console message, no sideways scrolling, both themes."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path

import pytest

from qualify.report.assemble import assemble
from qualify.report.html import render_html
from tests.report.test_report import full

IN_CI = os.environ.get("CI") == "true"  # there both are installed, and their absence fails
CHROMIUM = shutil.which("chromium")
if not IN_CI:
    pytest.importorskip("playwright.sync_api", reason="needs playwright")
playwright = importlib.import_module("playwright.sync_api")
pytestmark = pytest.mark.skipif(CHROMIUM is None and not IN_CI, reason="needs Debian's chromium")


def test_the_page_is_quiet_fits_a_phone_and_follows_the_theme(tmp_path: Path) -> None:
    page_file = tmp_path / "report.html"
    page_file.write_text(render_html(assemble(full())), "utf-8")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        papers = {}
        for width, scheme in ((390, "light"), (1200, "dark")):
            context = browser.new_context(
                viewport={"width": width, "height": 800}, color_scheme=scheme
            )
            page = context.new_page()
            said: list[str] = []
            asked: list[str] = []
            page.on("console", lambda m, said=said: said.append(m.text))
            page.on("pageerror", lambda e, said=said: said.append(str(e)))
            page.on("request", lambda r, asked=asked: asked.append(r.url))
            page.goto(page_file.as_uri())
            assert said == []
            assert asked == [page_file.as_uri()]
            assert page.evaluate("document.documentElement.scrollWidth") == width
            papers[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
            context.close()
        browser.close()
    # The style sheet passed its own policy, and it differs by theme.
    assert papers["light"] == "rgb(255, 255, 255)"
    assert papers["dark"] != papers["light"]
