"""JUnit XML, Markdown and CSV: valid for their readers whatever a server said."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from qualify.checks.verdict import Verdict
from qualify.cli.app import run as cli
from qualify.records.schema import Failure
from qualify.report.assemble import assemble
from qualify.report.csv import records_csv
from qualify.report.junit import junit
from qualify.report.markdown import markdown
from tests.factory import Maker, drafting, editing, target, where
from tests.report.folder import write_run
from tests.report.test_report import EVIL, full


def verdict(outcome: str, *, demanded: bool = True, said: str = "So it is.") -> Verdict:
    return Verdict("parity", "mtp", outcome, said, {"n": 1}, demanded)  # type: ignore[arg-type]


def test_a_verdict_is_a_test_case_and_only_a_demanded_failure_fails() -> None:
    outcomes = [
        verdict("pass"),
        verdict("fail"),
        verdict("waived"),
        verdict("inconclusive"),
        verdict("not-run"),
        verdict("fail", demanded=False),
    ]
    root = ET.fromstring(junit("a run", outcomes))
    assert {k: root.get(k) for k in ("tests", "failures", "skipped", "errors")} == {
        "tests": "6",
        "failures": "1",
        "skipped": "3",
        "errors": "0",
    }
    assert len(root.findall("testsuite/testcase")) == 6
    (failure,) = root.findall(".//failure")
    assert failure.get("message") == "So it is."
    assert '"n": 1' in (failure.text or "")
    assert "waived: So it is." in [e.text for e in root.findall(".//system-out")]


def test_what_xml_cannot_hold_is_replaced() -> None:
    nasty = f"{EVIL}\x00\x1b[31m\ud800\ufffe"
    root = ET.fromstring(junit(nasty, [verdict("fail", said=nasty)]))
    (failure,) = root.findall(".//failure")
    assert EVIL.replace("\n", " ") in (failure.get("message") or "")
    assert "\x1b" not in (failure.get("message") or "")


def test_every_verdict_of_a_run_is_in_the_xml() -> None:
    report = assemble(full())
    root = ET.fromstring(junit(report.run.id, report.verdicts))
    assert root.get("tests") == str(len(report.verdicts))


def test_markdown_tells_the_outcome_the_modes_and_what_did_not_pass() -> None:
    edit = editing(where(side="mtp", index=0), output_ids=(1, 2, 3))
    report = assemble(full(edit=edit))
    text = markdown(report)
    assert "not qualified" in text.splitlines()[0]
    for band in report.analysis.bands:
        assert f"| {band.name} |" in text
    assert "**fail** parity" in text
    assert text.count("\n| --- |") + text.count("\n| --- | ---") >= 2


def test_text_from_outside_stays_text_in_markdown() -> None:
    evil = f"{EVIL} [x](http://y) | `c` **b** \n# title"
    run = full(edit=editing(where(side="mtp", index=1), ok=False, failure=Failure(evil, evil)))
    run = dataclasses.replace(
        run, id=evil, plan=dataclasses.replace(run.plan, campaign={"campaign": evil})
    )
    text = markdown(assemble(run))
    assert "<script" not in text
    assert re.search(r"(?<!\\)\]\(", text) is None
    assert "\n# title" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = {line.replace("\\|", "").count("|") for line in rows}
    assert widths <= {5, 8}


def test_the_csv_has_a_row_a_record_and_missing_is_empty() -> None:
    run = Maker(sides={"target-only": target(), "mtp": drafting()}).build()
    rows = list(csv.DictReader(io.StringIO(records_csv(run.records), newline="")))
    assert len(rows) == len(run.records)
    first = next(r for r in run.records if r.side == "mtp")
    row = next(r for r in rows if r["side"] == "mtp")
    assert float(row["tpot_ms"]) == first.timing.tpot_ms
    assert int(row["V"]) == (first.speculation.V if first.speculation else None)
    assert (row["ok"], row["failure"]) == ("true", "")
    assert {r["V"] for r in rows if r["side"] == "target-only"} == {""}


def test_a_servers_text_is_no_formula_in_a_spreadsheet() -> None:
    run = Maker(edit=editing(where(index=0), finish_reason="=1+1", started_at='a,"b"\n')).build()
    rows = list(csv.DictReader(io.StringIO(records_csv(run.records), newline="")))
    assert rows[0]["finish_reason"] == "'=1+1"
    assert rows[0]["started_at"] == 'a,"b"\n'


def test_the_command_writes_each_format_where_it_is_told_to(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder = write_run(full(), tmp_path / "run")
    names = {kind: tmp_path / f"out.{kind}" for kind in ("junit", "markdown", "csv")}
    options = [word for kind, path in names.items() for word in (f"--{kind}", str(path))]
    assert cli(["report", str(folder), *options]) == 0
    assert ET.parse(names["junit"]).getroot().tag == "testsuites"
    assert names["markdown"].read_text().startswith("## made: qualified")
    assert names["csv"].read_bytes().startswith(b"run,launch,round,")
    capfdbinary.readouterr()
    assert cli(["report", str(folder), "--markdown", "-"]) == 0
    assert capfdbinary.readouterr().out == names["markdown"].read_bytes()
    assert cli(["report", str(folder), "--markdown", "-", "--json"]) == 2
    assert cli(["report", str(folder), "--csv", str(tmp_path / "no" / "x.csv")]) == 2
    assert b"cannot be written" in capfdbinary.readouterr().err
