"""Declined kernels: the two that the XPU article found, planted in a log."""

from __future__ import annotations

import json
from pathlib import Path

from qualify.checks.kernels import check
from qualify.records.store import load_run
from tests.checks.defects import only, run_on, with_checks

# The two lines of the article, with a time and a rank before them as SGLang prints them.
DECLINED = """\
[2026-08-19 10:00:01 TP0] XPU dense int8: declined because M=8 exceeded a cap of 4
[2026-08-19 10:00:02 TP0] SYMM AR: declined because 81,920 bytes exceeded a cap of 65,536
[2026-08-19 10:00:03 TP0] XPU dense int8: declined because M=8 exceeded a cap of 4
"""
SOUND = "[2026-08-19 10:00:01 TP0] Using intel_xpu attention, declared limits apply\n"


def say(folder: Path, text: str) -> tuple[str, str]:
    file = folder / f"said-{len(list(folder.iterdir()))}"
    file.write_text(text)
    return "--say", str(file)


def test_the_articles_two_declined_kernels_are_named_and_the_unmodified_engine_passes(
    tmp_path: Path,
) -> None:
    named = with_checks({"kernels": True}, {})
    bad = only(check, run_on(tmp_path / "bad", named, *say(tmp_path, DECLINED)))
    good = only(check, run_on(tmp_path / "good", named, *say(tmp_path, SOUND)))
    assert (bad.outcome, good.outcome) == ("fail", "pass")
    assert "3 lines" in bad.sentence
    assert "8 above 4" in bad.sentence
    caps = [(d["what"], d["value"], d["cap"], d["times"]) for d in bad.evidence["declined"]]
    assert caps == [("M", 8, 4, 2), ("bytes", 8 * 5120 * 2, 65536, 1)]
    assert bad.evidence["declined"][0]["first"]["line"] == 1


def test_a_campaign_forbids_some_lines_and_lets_others_through(tmp_path: Path) -> None:
    for options, outcome in (
        ({"forbid": ["SYMM AR"]}, "fail"),
        ({"forbid": ["fused KV"]}, "pass"),
        ({"allow": ["XPU dense int8", "symm ar"]}, "pass"),
        ({"allow": ["XPU dense int8"]}, "fail"),
    ):
        the_plan = with_checks({"kernels": options}, {})
        folder = tmp_path / json.dumps(options).replace("/", "")
        verdict = only(check, run_on(folder, the_plan, *say(tmp_path, DECLINED)))
        assert verdict.outcome == outcome, options
        assert len(verdict.evidence["declined"]) == 2


def test_the_bytes_that_were_too_many_are_the_verified_rows(tmp_path: Path) -> None:
    profile = {"args": {"speculative-num-draft-tokens": 8}}
    the_plan = with_checks({"kernels": True}, profile)
    found = only(check, run_on(tmp_path / "run", the_plan, *say(tmp_path, DECLINED)))
    (told,) = [d for d in found.evidence["declined"] if d["what"] == "bytes"]
    assert (told["rows"], told["values_a_row"]) == (8, 5120)


def test_unnamed_lines_are_counted_and_decide_nothing(tmp_path: Path) -> None:
    the_plan = with_checks({}, {})
    verdict = only(check, run_on(tmp_path / "run", the_plan, *say(tmp_path, DECLINED)))
    assert (verdict.outcome, verdict.demanded) == ("pass", False)
    assert "3 lines of the log say that a kernel was declined" in verdict.sentence


def test_without_a_log_there_is_nothing_to_read(tmp_path: Path) -> None:
    the_plan = with_checks({"kernels": True}, {})
    run = run_on(tmp_path / "run", the_plan)
    for log in run.folder.glob("engine-*.log"):
        log.unlink()
    assert only(check, load_run(run.folder)).outcome == "not-run"
