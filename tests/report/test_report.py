"""The report is whole, true, safe to open, and there even when everything failed."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from qualify.records.run import Run
from qualify.records.schema import Failure, LaunchRecord
from qualify.report.assemble import assemble
from qualify.report.build import build_report
from qualify.report.html import render_html
from qualify.report.terminal import print_report
from tests.factory import Maker, Mode, Work, drafting, editing, target, where
from tests.report.folder import write_run

WORKS = (Work("prose", (256, 1024)), Work("copy", (256, 2048), concurrency=(1, 2)))


def copying(cycle_ms: float = 11.0) -> Mode:
    return Mode("ngram", cycle_ms, 4, lambda w, p, s: 3 if w == "copy" else 0)


def full(**more: object) -> Run:
    sides = {"target-only": target(), "ngram": copying(), "mtp": drafting(right=[0, 2, 1])}
    return Maker(sides=sides, works=WORKS, **more).build()  # type: ignore[arg-type]


def refused() -> Run:
    edit = editing(where(), ok=False, failure=Failure("refused", "connection refused"))
    return Maker(
        sides={"target-only": target(), "mtp": drafting()}, edit=edit, works=(Work(count=20),)
    ).build()


def text_of(page: str) -> str:
    class Text(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.parts: list[str] = []

        def handle_data(self, data: str) -> None:
            self.parts.append(data)

    parser = Text()
    parser.feed(page)
    return re.sub(r"\s+", " ", " ".join(parser.parts))


def test_a_run_gets_its_three_files(tmp_path: Path) -> None:
    folder = write_run(full(), tmp_path / "run")
    page = build_report(folder)
    assert page == folder / "report.html"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["outcome"]["word"] == "qualified"
    verdicts = json.loads((folder / "verdicts.json").read_text())
    assert {"check", "subject", "outcome", "sentence", "evidence", "demanded"} == set(verdicts[0])
    assert not [p for p in folder.iterdir() if p.name.endswith(".part")]


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    folder = write_run(full(), tmp_path / "run")
    names = ("summary.json", "verdicts.json", "report.html")
    build_report(folder)
    first = [(folder / n).read_bytes() for n in names]
    build_report(folder)
    assert [(folder / n).read_bytes() for n in names] == first


def test_f083_a_run_in_which_everything_failed_still_gets_a_report(tmp_path: Path) -> None:
    folder = write_run(refused(), tmp_path / "run")
    page = text_of(build_report(folder).read_text())
    assert "0 of 20" in page
    assert "20 refused" in page
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["outcome"]["exit_code"] == 1
    assert summary["cells"][0]["ttft_s"]["median"] is None
    assert summary["cells"][0]["causes"] == {"refused": 20}
    assert "NaN" not in (folder / "summary.json").read_text()


def test_a_run_whose_engine_never_started_still_gets_a_report(tmp_path: Path) -> None:
    run = full()
    entry = LaunchRecord(
        "x",
        "r1.target-only#1",
        "r1.target-only",
        1,
        "target-only",
        "target-only",
        "failed",
        "now",
        reason="no such device",
    )
    run = dataclasses.replace(run, records=(), cells=(), launches=(entry,))
    page = text_of(build_report(write_run(run, tmp_path / "run")).read_text())
    assert "engine failed" in page
    assert "no such device" in page


EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


def test_everything_from_outside_is_escaped(tmp_path: Path) -> None:
    def edit(record):  # type: ignore[no-untyped-def]
        record = editing(where(side="mtp", index=0), output_ids=(1, 2), output_text=EVIL)(record)
        failing = editing(where(side="ngram", index=1), ok=False, failure=Failure(EVIL, EVIL))
        return failing(dataclasses.replace(record, notes=(EVIL,)))

    run = full(edit=edit)
    launches = tuple(
        dataclasses.replace(
            entry, origin={"argv": [EVIL], "engine": EVIL, "info": {"model": EVIL}}, reason=EVIL
        )
        for entry in run.launches
    )
    plan = dataclasses.replace(
        run.plan, campaign={"campaign": EVIL, "ledger": EVIL}, warnings=(EVIL,)
    )
    run = dataclasses.replace(
        run, id=EVIL, launches=launches, plan=plan, damage=(EVIL,), meta={"created": EVIL}
    )
    page = render_html(assemble(run))
    assert page.count("<script") == 1, "the page's own"
    assert page.rindex("alert(1)") < page.index("<script")
    assert "<img" not in page
    assert "alert(1)" in page
    console = Console(file=StringIO(), width=100)
    print_report(assemble(dataclasses.replace(run, id="[bold]x[/nothing]")), console)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_needs_no_network_no_inline_style_and_runs_its_own_script_alone() -> None:
    parser = Tags()
    page = render_html(assemble(full()))
    parser.feed(page)
    tags = [tag for tag, _ in parser.found]
    assert not set(tags) & {"link", "iframe", "object", "embed", "img"}
    assert tags.count("script") == 1
    script = page[page.index("<script>") + len("<script>") : page.index("</script>")]
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}';" in page
    for tag, attributes in parser.found:
        assert "style" not in attributes, tag
        assert not [a for a in attributes if a.startswith("on")], tag
        assert "src" not in attributes, tag
        if "href" in attributes:
            assert str(attributes["href"]).startswith("#")


def test_every_link_on_the_page_has_its_target() -> None:
    parser = Tags()
    parser.feed(render_html(assemble(full())))
    ids = [a["id"] for _, a in parser.found if "id" in a]
    assert len(ids) == len(set(ids))
    links = {str(a["href"])[1:] for _, a in parser.found if "href" in a}
    assert links <= set(ids)


def test_the_page_shows_the_summarys_figures() -> None:
    report = assemble(full())
    page = text_of(render_html(report))
    for pair in report.summary["pairs"]:
        assert f"{pair['decode']['ratio']:.2f}\u00d7" in page
        assert pair["decode"]["outcome"] in page
    for row in report.summary["recommendation"]:
        assert row["why"] in page
    for verdict in report.verdicts:
        assert re.sub(r"\s+", " ", verdict.sentence) in page


def test_a_newcomer_reads_which_mode_wins_where() -> None:
    sides = {"target-only": target(), "ngram": copying()}
    works = (Work("prose", (256, 1024)), Work("copy", (256, 2048)))
    page = text_of(render_html(assemble(Maker(sides=sides, works=works).build())))
    assert (
        "Serve: target-only on prose@256/c1 and prose@1024/c1; "
        "ngram on copy@256/c1 and copy@2048/c1." in page
    )


def test_a_default_that_no_comparison_settles_is_called_one() -> None:
    sides = {"target-only": target(), "mtp": drafting(right=[0, 2])}
    run = Maker(sides=sides, works=(Work("prose", (256, 1024), 1),)).build()
    page = text_of(render_html(assemble(run)))
    assert "Serve: target-only, the default: no measured workload settles for another mode." in page
    assert "not settled: the default" in page
    assert "more prompts or rounds could settle it" in page


def test_a_near_tie_is_explained_where_it_shows_up() -> None:
    sides = {"target-only": target(), "ngram": copying(10.05)}
    works = (Work("prose", (256,)), Work("copy", (256,)))
    page = text_of(render_html(assemble(Maker(sides=sides, works=works).build())))
    assert "or ngram: tied" in page
    assert "effectively tied" in page
    assert "a difference is not worth choosing by" in page


def test_where_two_outputs_part_the_page_shows_both() -> None:
    def other(record):  # type: ignore[no-untyped-def]
        ids = record.output_ids or ()
        changed = (*ids[:5], 9999, *ids[6:])
        return dataclasses.replace(
            record, output_ids=changed, output_text=" ".join(f"w{i}" for i in changed)
        )

    chosen = where(side="mtp", index=2, cell="prose@256/c1")
    report = assemble(full(edit=lambda r: other(r) if chosen(r) else r))
    page = text_of(render_html(report))
    assert report.outcome.word == "not qualified"
    assert "where they part" in page
    assert "token 5" in page
    assert "9999" in page


def test_the_class_of_prompts_stands_beside_each_acceptance() -> None:
    filler = editing(
        where(cell="copy@256/c1"), request=lambda r: {**r.request, "prompt_class": "repetitive"}
    )
    page = text_of(render_html(assemble(full(edit=filler))))
    assert "4 repetitive" in page
    assert "4 natural" in page


def test_outputs_forced_past_their_end_are_flagged() -> None:
    def ends(record):  # type: ignore[no-untyped-def]
        ids = record.output_ids or ()
        eos = [ids[9]] if record.index == 0 else [-1]
        return dataclasses.replace(record, request={**record.request, "eos_ids": eos})

    report = assemble(full(edit=ends))
    assert {s.forced_past_end for s in report.analysis.sides} == {1}
    page = text_of(render_html(report))
    assert "1 forced past their end" in page
    assert "The end token was ignored here" in page


def test_the_word_lossless_never_appears() -> None:
    for run in (full(), refused()):
        report = assemble(run)
        assert "lossless" not in render_html(report).lower()
        assert "lossless" not in json.dumps(report.summary).lower()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_terminal_report_fits_its_width_and_says_the_same(width: int) -> None:
    out = StringIO()
    print_report(assemble(full()), Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    assert "QUALIFIED" in out.getvalue()
    if width >= 80:
        assert "copy@2048/c2" in out.getvalue()


def test_a_missing_cell_is_seen_as_missing(tmp_path: Path) -> None:
    run = full()
    run = dataclasses.replace(
        run,
        cells=tuple(c for c in run.cells if c.launch != "r1.mtp#1"),
        records=tuple(r for r in run.records if r.side != "mtp"),
    )
    report = assemble(run)
    assert report.outcome.word == "inconclusive"
    page = text_of(render_html(report))
    assert "missing" in page
    mixed = report.analysis.recommendation[-1]
    assert mixed.mode in ("target-only", "ngram")


def test_what_a_server_said_cannot_command_the_terminal() -> None:
    said = "\x1b]0;owned\x07\x1b[2J\x1b[31mall is well\r"
    edit = editing(where(), ok=False, failure=Failure("http-error", said))
    run = Maker(sides={"target-only": target()}, edit=edit, works=(Work(count=2),)).build()
    launches = tuple(
        dataclasses.replace(entry, status="failed", reason=said) for entry in run.launches
    )
    report = assemble(dataclasses.replace(run, launches=launches))
    out = StringIO()
    print_report(report, Console(file=out, width=120, force_terminal=False))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out.getvalue())
