"""Write a run's report: verdicts.json, summary.json and report.html, each whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qualify.records.codec import utf8
from qualify.records.store import load_run, write_whole
from qualify.report.assemble import Report, assemble
from qualify.report.summary import verdicts_json

VERDICTS, SUMMARY, HTML = "verdicts.json", "summary.json", "report.html"


def build_report(folder: Path) -> Path:
    """Judge the run in `folder` and write its three files; returns the path of report.html.

    Works on a run in which everything failed. Raises UsageError where `folder` is no run.
    """
    return write_report(assemble(load_run(folder)))


def write_report(report: Report) -> Path:
    """Write an assembled report into its run's folder; returns the path of report.html."""
    from qualify.report.html import render_html  # on use: charts are slow to import

    folder = report.run.folder
    write_whole(folder / VERDICTS, _json(verdicts_json(report.verdicts)))
    write_whole(folder / SUMMARY, _json(report.summary))
    write_whole(folder / HTML, utf8(render_html(report)))
    return folder / HTML


def _json(data: Any) -> bytes:
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, indent=1, sort_keys=True)
    return utf8(text) + b"\n"
