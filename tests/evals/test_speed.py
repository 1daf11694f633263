"""Speed of evaluations, from answers whose times are written down by hand."""

from __future__ import annotations

import dataclasses

import pytest

from qualify.engines.protocol import Sampling
from qualify.evals.nouns import Completion
from qualify.evals.speed import speed_of
from qualify.plan import EvalPlan
from qualify.records.schema import (
    CacheEvidence,
    Record,
    Speculation,
    Timing,
    Usage,
)

PROBLEMS = ("a", "b", "c", "d")


def item(concurrency: int = 1) -> EvalPlan:
    return EvalPlan(
        "gsm8k", "gsm8k", ("answer",), "chat", Sampling(99), concurrency, "any", 9.0, PROBLEMS, "f"
    )


def answer(
    problem: str,
    side: str,
    *,
    tokens: int,
    first_s: float,
    last_s: float,
    steps: int | None = None,
    correct: int = 0,
    n_first: int = 1,
    ok: bool = True,
) -> Completion:
    spec = None if steps is None else Speculation("made", V=steps, P=3 * steps, C=correct)
    tpot_ms = (last_s - first_s) / (tokens - n_first) * 1000
    record = Record(
        run="r", launch="l#1", round=1, side=side, mode=side, cell="gsm8k", workload="gsm8k",
        tokens=50, concurrency=1, phase="measured", index=0, turn=0, prompt_id=problem,
        prompt_sha256="p", request={}, request_sha256="q", started_at="2026-01-01", t_start_s=0.0,
        ok=ok, failure=None, http_status=200, usage=Usage(50, tokens),
        timing=Timing("first-event", first_s, first_s, last_s, last_s, n_first, tpot_ms, None,
                      None, None, ()),
        finish_reason="stop", output_text="x", reasoning_text=None, output_ids=None,
        output_sha256="s", speculation=spec, cache=CacheEvidence("any", None),
        client_delay_ms=0.0,
    )  # fmt: skip
    return Completion("gsm8k", problem, "b", f"{side}/{problem}", record)


BASE = {
    "a": answer("a", "target-only", tokens=11, first_s=1.0, last_s=2.0),
    "b": answer("b", "target-only", tokens=101, first_s=1.0, last_s=11.0),
    "c": answer("c", "target-only", tokens=30, first_s=1.0, last_s=4.0),
    "d": answer("d", "target-only", tokens=2, first_s=1.0, last_s=1.1),
}
OTHER = {
    # 10 tokens in half the time; 100 in four fifths; c has another length; d is too short.
    "a": answer("a", "mtp", tokens=11, first_s=1.0, last_s=1.5, steps=4, correct=6),
    "b": answer("b", "mtp", tokens=101, first_s=1.0, last_s=9.0, steps=80, correct=20),
    "c": answer("c", "mtp", tokens=31, first_s=1.0, last_s=2.0, steps=8, correct=20),
    "d": answer("d", "mtp", tokens=2, first_s=1.0, last_s=1.05, steps=1, correct=0),
}


def test_decode_and_wall_aggregate_and_by_prompt_are_four_different_figures() -> None:
    found = speed_of(item(), "mtp", "target-only", BASE, OTHER)
    assert found.compared == 2
    assert found.left_out == {"too few tokens to time": 1, "unequal lengths": 1}
    assert [(p.problem, p.decode, p.wall) for p in found.prompts] == [
        ("a", pytest.approx(2.0), pytest.approx(2.0 / 1.5)),
        ("b", pytest.approx(1.25), pytest.approx(11.0 / 9.0)),
    ]
    assert found.aggregate_decode == pytest.approx(11.0 / 8.5)
    assert found.aggregate_wall == pytest.approx(13.0 / 10.5)
    assert found.decode is not None
    assert found.decode.mean == pytest.approx((2.0 * 1.25) ** 0.5)
    assert (found.decode.low, found.decode.high) == (pytest.approx(1.25), pytest.approx(2.0))


def test_accept_length_is_pooled_and_by_prompt() -> None:
    found = speed_of(item(), "mtp", "target-only", BASE, OTHER)
    assert found.accept_length == pytest.approx(1 + 26 / 84)
    assert [p.accept_length for p in found.prompts] == [1 + 6 / 4, 1 + 20 / 80]
    assert found.accept is not None
    assert (found.accept.low, found.accept.high) == (1.25, 2.5)


def test_a_burst_in_the_first_event_does_not_count_as_decoding() -> None:
    other = {"a": answer("a", "mtp", tokens=11, first_s=1.0, last_s=1.5, n_first=6)}
    found = speed_of(item(), "mtp", "target-only", BASE, other)
    assert found.prompts[0].decode == pytest.approx(100.0 / 100.0)


def test_answers_that_failed_or_are_missing_are_left_out_and_said() -> None:
    lost = {"a": dataclasses.replace(OTHER["a"], record=dataclasses.replace(
        OTHER["a"].record, ok=False))}  # fmt: skip
    found = speed_of(item(), "mtp", "target-only", BASE, lost)
    assert found.left_out == {"no answer": 4}
    assert (found.compared, found.aggregate_decode, found.decode) == (0, None, None)


def test_times_of_requests_in_flight_together_are_not_compared() -> None:
    found = speed_of(item(concurrency=4), "mtp", "target-only", BASE, OTHER)
    assert "4 requests were in flight" in (found.refused or "")
    assert found.aggregate_wall is None
