"""Ranks: one request in which they differ, or a rank without a log, fails the side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qualify.checks.ranks import check
from tests.checks.defects import only, run_on, with_checks

TWO = with_checks({"ranks": True}, {"args": {"tp-size": 2}})
ONE = with_checks({"ranks": True}, {})


def saying(folder: Path, lines: Sequence[str]) -> tuple[str, str]:
    """Options that put these lines into the engine's log."""
    file = folder / "lines"
    file.write_text("".join(f"{line}\n" for line in lines))
    return "--say", str(file)


def rank_line(rank: int, digest: str, rid: str = "a, b") -> str:
    return f"[2026-11-30 00:52:57 TP{rank}] Rank tokens, rid: {rid}, #token: 22, sha256: {digest}"


def test_a_request_in_which_the_ranks_differ_is_named_and_the_unmodified_engine_passes(
    tmp_path: Path,
) -> None:
    # Two plantings, one warm-up: the fifth generation is the cell's second prompt.
    run = run_on(tmp_path / "bad", TWO, "--rank-parity", "--ranks-apart", "4")
    bad = only(check, run)
    good = only(check, run_on(tmp_path / "good", TWO, "--rank-parity"))
    assert (bad.outcome, good.outcome) == ("fail", "pass")
    assert "different tokens in 1 request, first prose@48/measured/1.0 in prose@48/c1" in (
        bad.sentence
    )
    noted = [r.prompt_id for r in run.measured() if any("ranks" in n for n in r.notes)]
    assert noted == ["prose@48/measured/1.0"]
    assert good.sentence.startswith("All of 2 ranks committed the same tokens: ")
    assert good.demanded


def test_ranks_whose_logs_tell_other_tokens_fail_though_no_request_says_so(tmp_path: Path) -> None:
    told = [rank_line(0, "aa"), rank_line(1, "ab"), rank_line(0, "cc", "r2"),
            rank_line(1, "cc", "r2")]  # fmt: skip
    bad = only(check, run_on(tmp_path / "bad", TWO, *saying(tmp_path, told)))
    assert bad.outcome == "fail"
    assert "in 1 of 2 requests, first a, b in r1.target-only" in bad.sentence
    good = only(check, run_on(tmp_path / "good", TWO, *saying(tmp_path, told[2:])))
    assert good.outcome == "pass"
    assert "each rank logged the same tokens of 1 request" in good.sentence


def test_a_rank_that_left_no_line_is_named(tmp_path: Path) -> None:
    pocket = ["[rank 0] qwen_startup=1", "[rank 2] qwen_startup=1"]
    four = with_checks({}, {"args": {"tp-world": 4}})
    bad = only(check, run_on(tmp_path / "bad", four, *saying(tmp_path, pocket), "--rank-parity"))
    assert bad.outcome == "fail"
    assert "Of 4 ranks, rank 1, 3 left no line" in bad.sentence
    whole = [*pocket, "[rank 1] qwen_startup=1", "(VllmWorker rank=3 pid=9) loaded"]
    good = only(check, run_on(tmp_path / "good", four, *saying(tmp_path, whole), "--rank-parity"))
    assert good.outcome == "pass"


def test_an_engine_that_does_not_say_is_not_run_and_one_rank_needs_no_agreement(
    tmp_path: Path,
) -> None:
    silent = only(check, run_on(tmp_path / "silent", TWO))
    assert (silent.outcome, silent.demanded) == ("not-run", True)
    assert "does not say whether they agree" in silent.sentence
    alone = only(check, run_on(tmp_path / "alone", ONE, dialect="llamacpp"))
    assert (alone.outcome, alone.demanded) == ("not-run", False)
