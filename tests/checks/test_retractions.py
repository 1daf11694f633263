"""Retractions: one request that was sent back fails the side; an engine that is silent does not
pass."""

from __future__ import annotations

from pathlib import Path

from qualify.checks.retractions import check
from tests.checks.defects import only, run_on, with_checks

NAMED = with_checks({"retractions": True}, {})
# SGLang 0.5.18's wording.
LINE = (
    "[2026-08-19 10:00:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, "
    "#new_tokens_gained: 8192, #new_token_ratio: 0.4000 -> 0.7000\n"
)


def test_a_request_that_was_retracted_is_named_and_the_unmodified_engine_passes(
    tmp_path: Path,
) -> None:
    # Two plantings, one warm-up: the fifth generation is the cell's second prompt.
    bad = only(check, run_on(tmp_path / "bad", NAMED, "--retract", "4=2"))
    good = only(check, run_on(tmp_path / "good", NAMED))
    assert (bad.outcome, good.outcome) == ("fail", "pass")
    assert "prose@48/measured/1.0 in prose@48/c1 (2x)" in bad.sentence
    assert "every request says 0" in good.sentence


def test_a_line_of_the_log_convicts_where_no_request_says_so(tmp_path: Path) -> None:
    said = tmp_path / "said"
    said.write_text(LINE)
    bad = only(check, run_on(tmp_path / "bad", NAMED, "--say", str(said)))
    assert bad.outcome == "fail"
    assert "#retracted_reqs: 1" in bad.sentence


def test_an_engine_that_does_not_say_is_not_run_and_never_a_pass(tmp_path: Path) -> None:
    verdict = only(check, run_on(tmp_path / "run", NAMED, dialect="llamacpp"))
    assert (verdict.outcome, verdict.demanded) == ("not-run", True)
    assert "unknown is not 0" in verdict.sentence
