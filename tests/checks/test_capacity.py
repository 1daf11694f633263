"""Capacity: each planted defect fails by name while the unmodified engine passes beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualify.checks.capacity import check
from qualify.checks.overlap import together
from tests.checks.defects import only, run_on, with_checks

PROFILE = {"context_tokens": 512, "pool_tokens": 512, "max_running": 2}
SOUND = ("--context", "512", "--slots", "2", "--step-ms", "3")
NAMED = with_checks({"capacity": True}, PROFILE)


@pytest.mark.parametrize(
    ("defect", "says"),
    [
        (("--pool", "448"), "holds 448 tokens; 512 were asked for"),
        (("--context", "448", "--pool", "512"), "the limit of 512, were not served"),
        (("--context", "1024", "--pool", "512"), "served: the limit is not where"),
        (("--truncate",), "not refused but truncated to 16"),
        (("--slots", "1"), "1 of 4 requests ran together, and the profile says 2"),
    ],
)
def test_a_planted_defect_is_named_and_the_unmodified_engine_passes(
    tmp_path: Path, defect: tuple[str, ...], says: str
) -> None:
    bad = only(check, run_on(tmp_path / "bad", NAMED, *SOUND, *defect))
    good = only(check, run_on(tmp_path / "good", NAMED, *SOUND))
    assert (bad.outcome, good.outcome) == ("fail", "pass")
    assert says in bad.sentence
    assert "512 tokens of input and output are served, one more is refused" in good.sentence
    assert good.evidence["concurrency"] == {
        "sent_together": 4,
        "found": 2,
        "expected": 2,
        "ceiling": 2,
        "engine_says": 2,
    }


def test_the_pool_that_was_cut_to_what_memory_holds_fails_by_the_logs_own_words(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    said.write_text(
        "[2026-08-19 10:00:00 TP0] max_total_tokens=1048576 is larger than the profiled value "
        "917504. Use the profiled value instead.\n"
    )
    bad = only(check, run_on(tmp_path / "bad", NAMED, *SOUND, "--say", str(said)))
    assert bad.outcome == "fail"
    assert "larger than the profiled value 917504" in bad.sentence


def test_state_slots_make_the_effective_concurrency_and_the_ceiling_is_named_beside_it(
    tmp_path: Path,
) -> None:
    profile = {**PROFILE, "max_running": 64, "state_slots": 10, "state_slots_per_request": 5}
    named = with_checks({"capacity": {"limit": False}}, profile)
    good = only(check, run_on(tmp_path / "run", named, *SOUND))
    assert good.outcome == "pass"
    assert good.evidence["concurrency"]["expected"] == 2
    assert "2 of 4 requests ran together under a ceiling of 64" in good.sentence


def test_what_an_engine_says_at_its_start_is_no_evidence(tmp_path: Path) -> None:
    quiet = with_checks({}, PROFILE)
    verdict = only(check, run_on(tmp_path / "run", quiet, *SOUND))
    assert (verdict.outcome, verdict.demanded) == ("not-run", False)
    wrong = only(check, run_on(tmp_path / "wrong", quiet, *SOUND, "--pool", "448"))
    assert wrong.outcome == "fail"  # a banner that admits it convicts all the same


def test_streams_that_never_decode_at_one_time_did_not_run_together() -> None:
    assert together([]) == 0
