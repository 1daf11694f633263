"""Graphs: what the log of a server says of captures, and what was really exercised."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualify.checks.captures import read_captures
from qualify.checks.enginelog import lines_of
from qualify.checks.graphs import check
from tests.checks.defects import only, run_on, with_checks

CONFIG = '{"decode":{"backend":"full","bs":[1,2]},"prefill":{"backend":"disabled"}}'
PROFILE = {"context_tokens": 512, "args": {"cuda-graph-config": CONFIG}}
SOUND = ("--context", "512", "--step-ms", "3", "--log-steps", "graph")

# SGLang's wording as recorded in engine-protocols; figures are made up.
TARGET = """\
[2026-08-19 10:00:00 TP0] Capture target verify XPU graph begin. backend=full, \
num_tokens_per_req=8, avail mem=3.10 GB
[2026-08-19 10:00:05 TP0] Capture cuda graph bs [1, 2]
[2026-08-19 10:00:09 TP0] Capture target verify XPU graph end. elapsed=9.00 s, mem usage=0.40 GB, \
avail mem=2.70 GB.
"""
DRAFT = """\
[2026-08-19 10:00:10 TP0] Capture draft decode XPU graph begin. backend=full, \
num_tokens_per_req=8, avail mem=2.70 GB
[2026-08-19 10:00:12 TP0] Capture draft decode XPU graph end. elapsed=2.00 s, mem usage=0.10 GB, \
avail mem=2.60 GB.
"""
NAMED = with_checks({"graphs": {"draft": True}}, PROFILE, ("mtp",))


def say(folder: Path, text: str) -> tuple[str, str]:
    file = folder / f"said-{len(list(folder.iterdir()))}"
    file.write_text(text)
    return "--say", str(file)


@pytest.mark.parametrize(
    ("log", "more", "says"),
    [
        (TARGET, (), "The drafter was to be captured, and no log line shows that it was; the"),
        (DRAFT, (), "The target was to be captured, and no log line shows that it was"),
        (TARGET.rsplit("[", 1)[0] + DRAFT, (), "The capture of the target began and never ended"),
        (TARGET.replace("[1, 2]", "[1]") + DRAFT, (), "Batch sizes 2 were to be captured"),
        (TARGET + DRAFT, ("--log-steps", "eager"), "ran eagerly, though that batch size was"),
        (TARGET + DRAFT, ("--fault", "8=cut"), "A batch of 2 failed: truncated-stream"),
        (TARGET + DRAFT, ("--context", "400"), "512 tokens, and the running engine says"),
    ],
)
def test_a_planted_defect_is_named_and_the_unmodified_engine_passes(
    tmp_path: Path, log: str, more: tuple[str, ...], says: str
) -> None:
    bad = only(check, run_on(tmp_path / "bad", NAMED, *SOUND, *say(tmp_path, log), *more))
    good = only(check, run_on(tmp_path / "good", NAMED, *SOUND, *say(tmp_path, TARGET + DRAFT)))
    assert (bad.outcome, good.outcome) == ("fail", "pass")
    assert says in bad.sentence
    assert "Captured: target and drafter; batches of 1, 2, 3" in good.sentence
    assert "longest context (512 tokens)" in good.sentence
    assert good.evidence["exercised"]["graph_steps"] > 0


def test_a_drafter_that_runs_eagerly_beside_a_captured_target_is_said(tmp_path: Path) -> None:
    the_plan = with_checks({"graphs": True}, PROFILE, ("mtp",))
    found = only(check, run_on(tmp_path / "run", the_plan, *SOUND, *say(tmp_path, TARGET)))
    assert found.outcome == "pass"
    assert "Captured: target; the drafter runs eagerly" in found.sentence


def test_enabled_in_the_arguments_is_no_evidence(tmp_path: Path) -> None:
    the_plan = with_checks({"graphs": True}, PROFILE)
    found = only(check, run_on(tmp_path / "run", the_plan, *SOUND))
    assert found.outcome == "fail"
    assert "no log line shows" in found.sentence


def test_an_engine_that_says_it_captures_none_is_not_run(tmp_path: Path) -> None:
    text = "[2026-08-19 10:00:00] No CUDA graph is captured: every step runs eagerly.\n"
    the_plan = with_checks({}, {"context_tokens": 512})
    found = only(check, run_on(tmp_path / "run", the_plan, *say(tmp_path, text)))
    assert (found.outcome, found.demanded) == ("not-run", False)
    assert "says that it captures no graph" in found.sentence


def test_captured_and_never_exercised_is_no_pass(tmp_path: Path) -> None:
    the_plan = with_checks({}, PROFILE)
    found = only(check, run_on(tmp_path / "run", the_plan, *say(tmp_path, TARGET)))
    assert found.outcome == "not-run"
    assert "Not exercised: every batch size and the longest context" in found.sentence


def test_older_and_other_wordings_are_understood(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "[2026-08-08 10:00:00] Capture cuda graph begin. This can take minutes. avail mem=3 GB\n"
        "Capturing batches (bs=8 avail_mem=2.9 GB):   0%\r  25%\n"
        "[2026-08-08 10:00:09] Capture cuda graph end. Time elapsed: 9.00 s. mem usage=0.40 GB.\n"
        "[2026-08-08 10:00:10] Capture draft extend cuda graph begin. avail mem=2.60 GB\n"
    )
    found = read_captures(lines_of(log))
    assert found.captured("target")
    assert not found.captured("draft")
    assert found.unfinished() == ["draft"]
    assert found.sizes == {8}
    log.write_text("INFO 08-08 Graph capturing finished in 12 secs, took 0.52 GiB\n")
    assert read_captures(lines_of(log)).captured("target")
