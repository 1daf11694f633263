"""Server-wide counters: differences between two looks, or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualify.engines.counters import (
    CORRECT,
    RESTARTED,
    STEPS,
    VERIFY_STEPS,
    difference,
    ratio,
    window_speculation,
)
from qualify.engines.prometheus import parse_counters


def test_f067_a_window_is_the_difference_and_not_the_servers_whole_life() -> None:
    before = {CORRECT: 5000.0, VERIFY_STEPS: 2000.0}
    after = {CORRECT: 5400.0, VERIFY_STEPS: 2100.0}
    assert ratio(difference(before, after), CORRECT, VERIFY_STEPS) == pytest.approx(4.0)


def test_f067_counters_that_nobody_reports_are_not_reported_and_never_a_number() -> None:
    change = difference({"other": 1.0}, {"other": 2.0})
    assert change.get(CORRECT) is None
    assert ratio(change, CORRECT, VERIFY_STEPS) is None
    assert window_speculation(change, "x") is None
    assert difference(None, {"a": 1.0}).problem == "not reported"


@pytest.mark.parametrize("after", [{CORRECT: 40.0, VERIFY_STEPS: 2100.0}, {VERIFY_STEPS: 2100.0}])
def test_f067_a_counter_that_goes_backwards_or_vanishes_means_a_restart(
    after: dict[str, float],
) -> None:
    change = difference({CORRECT: 5000.0, VERIFY_STEPS: 2000.0}, after)
    assert change.problem is not None
    assert change.problem.startswith(RESTARTED)
    assert change.get(VERIFY_STEPS) is None


def test_a_series_that_appears_during_the_window_began_at_zero() -> None:
    assert difference({}, {CORRECT: 3.0}).get(CORRECT) == 3.0


def test_plain_steps_follow_from_a_count_of_forwards() -> None:
    change = difference(
        {VERIFY_STEPS: 0.0, STEPS: 0.0, CORRECT: 0.0, "requests": 0.0},
        {VERIFY_STEPS: 5.0, STEPS: 13.0, CORRECT: 51.0, "requests": 1.0},
    )
    spec = window_speculation(change, "counters", one_by_one=True)
    assert spec is not None
    assert (spec.V, spec.T, spec.N0) == (5, 7, 1)
    assert "T" in spec.derived
    together = window_speculation(change, "counters")
    assert together is not None
    assert together.T is None


def test_an_engine_that_does_not_count_requests_is_told_how_many_there_were() -> None:
    change = difference({VERIFY_STEPS: 0.0, STEPS: 0.0}, {VERIFY_STEPS: 5.0, STEPS: 14.0})
    spec = window_speculation(change, "counters", requests=2, one_by_one=True)
    assert spec is not None
    assert (spec.N0, spec.T) == (2, 7)


def test_prometheus_text_keeps_counters_and_sums_their_labels() -> None:
    text = (
        "# HELP a_total x\n# TYPE a_total counter\n"
        'a_total{pos="0",q="}\\""} 4\na_total{pos="1"} 3 1700000000\n'
        "# TYPE b gauge\nb 7\n# TYPE c counter\nc_total 1e3\nd_total NaN\ne_total 2\nbroken\n"
        '# TYPE h histogram\nh_bucket{le="1"} 9\nh_count 9\n'
    )
    assert parse_counters(text) == {"a_total": 7.0, "c_total": 1000.0, "e_total": 2.0}


def test_the_real_servers_metrics_are_read() -> None:
    file = Path(__file__).with_name("llamacpp_metrics.json")
    looks = json.loads(file.read_text())
    before, after = (parse_counters(looks[k]) for k in ("before", "after"))
    change = difference(before, after)
    assert change.problem is None
    assert change.get("llamacpp:spec_decode_num_drafts_total") == 6
    assert change.get("llamacpp:spec_decode_num_draft_tokens_total") == 19
    assert change.get("llamacpp:spec_decode_num_accepted_tokens_total") == 12
