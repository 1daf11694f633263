"""Completion, shape, prompts, length and streams: what must hold before a figure counts."""

from __future__ import annotations

import dataclasses

import pytest

from qualify.checks import (
    client,
    completion,
    implausible,
    length,
    prompts,
    protocol,
    shape,
    stream,
)
from qualify.checks.all import CHECKS, run_checks
from qualify.checks.outcome import outcome_of
from qualify.checks.settings import OPTIONS, Settings
from qualify.checks.verdict import Verdict
from qualify.errors import ExitCode
from qualify.records.run import Run
from qualify.records.schema import CacheEvidence, Failure, LaunchRecord, Usage
from tests.factory import Maker, Mode, Work, drafting, editing, target, where

S = Settings()
PAIR = {"target-only": target(), "mtp": drafting()}


def outcomes(verdicts: list[Verdict]) -> set[str]:
    return {v.outcome for v in verdicts}


def of(verdicts: list[Verdict], part: str) -> Verdict:
    found = [v for v in verdicts if part in v.subject]
    assert len(found) == 1, [v.subject for v in verdicts]
    return found[0]


def test_a_clean_run_passes_every_check_and_qualifies() -> None:
    run = Maker(sides=PAIR, works=(Work(tokens=(256, 1024)),)).build()
    verdicts = run_checks(run)
    assert {v.outcome for v in verdicts if v.demanded} == {"pass"}
    # A made run has no engine log, and a check that sends requests must be named.
    without = {v.check for v in verdicts if v.outcome == "not-run"}
    assert without <= {
        "integrity",
        "image",
        "capacity",
        "graphs",
        "kernels",
        "reuse",
        "lifecycle",
        "retrieval",
    }
    assert outcome_of(run, verdicts).exit_code == ExitCode.QUALIFIED


def test_every_check_has_its_options_listed() -> None:
    assert {name for name, _ in CHECKS} <= set(OPTIONS)


def test_f026_a_prompt_count_that_differs_on_one_request_fails_with_both_numbers() -> None:
    edit = editing(where(side="mtp", index=3), usage__prompt_tokens=2104)
    found = shape.check(Maker(sides=PAIR, works=(Work(tokens=(2048,)),), edit=edit).build(), S)
    verdict = of(found, "mtp")
    assert verdict.outcome == "fail"
    assert "asked 2,048, engine saw 2,104" in verdict.sentence
    assert verdict.evidence["mismatched"] == 1
    assert of(found, "target-only").outcome == "pass"


@pytest.mark.parametrize("seen", [2047, 2049])
def test_one_token_more_or_less_than_planned_fails_the_shape(seen: int) -> None:
    """A server that adds its own start token is the commonest case."""
    edit = editing(where(side="mtp"), usage__prompt_tokens=seen)
    found = shape.check(Maker(sides=PAIR, works=(Work(tokens=(2048,)),), edit=edit).build(), S)
    assert of(found, "mtp").outcome == "fail"


def test_an_unreported_prompt_count_is_inconclusive_and_not_equal() -> None:
    edit = editing(where(index=0), usage__prompt_tokens=None)
    assert outcomes(shape.check(Maker(edit=edit).build(), S)) == {"inconclusive"}


def test_more_than_the_engine_says_it_holds_fails_the_shape() -> None:
    run = Maker(output_tokens=32, works=(Work(tokens=(256,)),)).build()
    launches = tuple(
        dataclasses.replace(entry, origin={"info": {"context_tokens": 280}})
        for entry in run.launches
    )
    assert outcomes(shape.check(dataclasses.replace(run, launches=launches), S)) == {"fail"}


def test_f031_a_short_output_fails_a_fixed_length_cell_and_names_its_size() -> None:
    edit = editing(where(side="mtp", index=1), usage__completion_tokens=37, finish_reason="stop")
    found = length.check(Maker(sides=PAIR, output_tokens=256, edit=edit).build(), S)
    assert of(found, "mtp").outcome == "fail"
    assert "37 of 256" in of(found, "mtp").sentence


def test_a_short_output_is_right_where_the_campaign_asks_for_the_natural_end() -> None:
    edit = editing(where(index=1), usage__completion_tokens=17, finish_reason="stop")
    run = Maker(works=(Work(until="eos"),), edit=edit).build()
    assert outcomes(length.check(run, S)) == {"pass"}


def test_failed_requests_are_counted_by_cause_and_fail_the_stream() -> None:
    edit = editing(where(side="mtp"), ok=False, failure=Failure("refused", "connection refused"))
    found = stream.check(Maker(sides=PAIR, edit=edit).build(), S)
    assert of(found, "mtp").outcome == "fail"
    assert of(found, "mtp").evidence["causes"] == {"refused": 4}
    assert "0 of 4 requests succeeded" in of(found, "mtp").sentence


def test_a_success_without_usage_or_tokens_does_not_count() -> None:
    edit = editing(where(index=0), usage=Usage(256, None, 0))
    found = stream.check(Maker(edit=edit).build(), S)
    assert found[0].evidence["causes"] == {"no-usage": 2}
    edit = editing(where(index=0), usage=Usage(256, 0, 0))
    assert stream.check(Maker(edit=edit).build(), S)[0].evidence["causes"] == {"no-tokens": 2}


def test_a_prompt_sent_twice_in_a_launch_is_found() -> None:
    edit = editing(where(index=1), prompt_sha256="same")
    twice = editing(where(index=2), prompt_sha256="same")
    found = prompts.check(Maker(edit=lambda r: twice(edit(r))).build(), S)
    assert found[0].outcome == "fail"
    assert "sent twice" in found[0].sentence.lower()


def test_a_prompt_that_differs_between_sides_is_found() -> None:
    edit = editing(where(side="mtp", index=0), prompt_sha256="other")
    found = prompts.check(Maker(sides=PAIR, edit=edit).build(), S)
    assert found[0].evidence["differing_between_launches"] == ["prose@256/measured/0"]


def test_a_warm_up_that_uses_the_measured_prompt_is_found() -> None:
    run = Maker().build()
    first = run.measured()[0]
    warm = dataclasses.replace(first, phase="warmup")
    found = prompts.check(dataclasses.replace(run, records=(warm, *run.records)), S)
    assert found[0].outcome == "fail"
    assert "used to warm up" in found[0].sentence


def test_a_cell_that_was_never_measured_is_not_run_and_not_passed_over() -> None:
    run = Maker(sides=PAIR).build()
    lost = tuple(c for c in run.cells if not c.launch.startswith("r1.mtp"))
    kept = tuple(r for r in run.records if r.side != "mtp")
    run = dataclasses.replace(run, cells=lost, records=kept)
    assert of(completion.check(run, S), "mtp").outcome == "not-run"
    assert outcome_of(run, run_checks(run)).exit_code == ExitCode.INCONCLUSIVE


def test_a_failed_cell_carries_its_reason() -> None:
    def fail(end):  # type: ignore[no-untyped-def]
        if end.launch.startswith("r1.mtp"):
            return dataclasses.replace(end, status="failed", reason="engine died")
        return end

    run = Maker(sides=PAIR, edit_end=fail).build()
    verdict = of(completion.check(run, S), "mtp")
    assert verdict.outcome == "fail"
    assert "engine died" in verdict.sentence


def test_an_engine_that_failed_before_anything_was_measured_exits_3() -> None:
    run = Maker().build()
    broken = LaunchRecord("x", "r1.t#1", "r1.t", 1, "t", "t", "failed", "now", reason="no device")
    run = dataclasses.replace(run, cells=(), records=(), launches=(broken,))
    outcome = outcome_of(run, run_checks(run))
    assert outcome.exit_code == ExitCode.ENGINE_FAILED
    assert "no device" in outcome.sentence


def test_a_check_that_breaks_is_inconclusive_and_stops_no_other() -> None:
    def broken(run: Run, settings: Settings) -> list[Verdict]:
        raise RuntimeError("odd")

    verdicts = run_checks(Maker().build(), (("broken", broken), ("shape", shape.check)))
    assert [(v.check, v.outcome) for v in verdicts] == [
        ("broken", "inconclusive"),
        ("shape", "pass"),
    ]
    assert "odd" in verdicts[0].sentence


def test_a_demanded_check_that_does_not_exist_yet_leaves_the_run_inconclusive() -> None:
    run = Maker(checks={"kernels": True}).build()
    verdicts = run_checks(run)
    assert next(v for v in verdicts if v.check == "kernels").outcome == "not-run"
    assert outcome_of(run, verdicts).exit_code == ExitCode.INCONCLUSIVE


def test_a_check_switched_off_decides_nothing() -> None:
    edit = editing(where(index=0), usage__prompt_tokens=1)
    run = Maker(checks={"shape": False}, edit=edit).build()
    assert outcome_of(run, run_checks(run)).exit_code == ExitCode.QUALIFIED


def test_f041_sides_with_different_cache_protocols_are_not_compared() -> None:
    edit = editing(where(side="mtp"), cache=CacheEvidence("warm", "none"))
    found = protocol.check(Maker(sides=PAIR, edit=edit).build(), S)
    assert found[0].outcome == "fail"
    assert list(found[0].evidence["differing"]["prose@256/c1"]) == ["cache"]


def test_f071_a_greedy_side_is_not_compared_with_a_sampled_one() -> None:
    edit = editing(where(side="mtp"), request=lambda r: {**r.request, "temperature": 0.6})
    found = protocol.check(Maker(sides=PAIR, edit=edit).build(), S)
    assert list(found[0].evidence["differing"]["prose@256/c1"]) == ["temperature"]


def test_a_late_client_is_told_but_decides_only_where_demanded() -> None:
    edit = editing(where(), client_delay_ms=500.0)
    run = Maker(edit=edit).build()
    found = client.check(run, S)
    assert outcomes(found) == {"inconclusive"}
    assert not found[0].demanded
    assert client.check(run, Settings({"client": True}))[0].demanded


def test_a_million_tokens_a_second_is_flagged() -> None:
    edit = editing(where(index=1), timing__tpot_ms=0.001)
    found = implausible.check(Maker(edit=edit).build(), S)
    assert [v.outcome for v in found] == ["inconclusive"]
    assert found[0].evidence["flagged"][0]["prompt"] == "prose@256/measured/1"


def test_a_mode_that_the_engine_calls_a_lookup_is_one_whatever_its_name() -> None:
    from qualify.checks.select import drafter_of

    plan = Maker(sides={"target-only": target(), "copycat": Mode("copycat")}).plan()
    assert drafter_of(plan, "copycat") == "model"
    named = dataclasses.replace(plan, engine={"modes": {"copycat": {"drafter": "ngram"}}})
    assert drafter_of(named, "copycat") == "lookup"


def test_a_finished_cell_of_which_a_record_is_gone_is_not_taken_for_complete() -> None:
    run = Maker(sides=PAIR).build()
    gone = next(r for r in run.records if r.phase == "measured" and r.side == "mtp")
    cut = dataclasses.replace(
        run, records=tuple(r for r in run.records if r is not gone), damage=("records.jsonl: cut",)
    )
    found = of(completion.check(cut, S), f"mtp, {gone.cell}")
    assert found.outcome == "inconclusive"
    assert "lost after measuring" in found.sentence


def test_a_finished_cell_whose_records_were_doubled_is_not_taken_for_more_evidence() -> None:
    run = Maker(sides=PAIR).build()
    doubled = dataclasses.replace(run, records=(*run.records, *run.records))
    assert outcomes(completion.check(doubled, S)) == {"inconclusive"}
