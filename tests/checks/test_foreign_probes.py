"""The checks that send requests, on what a real llama.cpp server answered to them.

transcripts/llama-cpp-probes.tar.gz is a run's folder, recorded on two busy CPU cores
(SmolLM2-135M, modes target-only and ngram); only paths of that machine were shortened.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from qualify.checks import cliff, identity, lifecycle, parity, reuse
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run
from qualify.records.store import load_run

RECORDED = Path(__file__).parents[1] / "cases" / "transcripts" / "llama-cpp-probes.tar.gz"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RECORDED) as packed:
        packed.extractall(folder, filter="data")
    return load_run(folder)


def told(run: Run, found: list[Verdict]) -> dict[str, Verdict]:
    return {verdict.subject: verdict for verdict in found}


def test_reuse_is_exact_there_and_its_times_bear_the_claim_out(run: Run) -> None:
    for side, verdict in told(run, reuse.check(run, Settings(run.plan.checks))).items():
        assert verdict.outcome == "pass", (side, verdict.sentence)
        cached = {c: row["cached_tokens"] for c, row in verdict.evidence["cases"].items()}
        assert cached == {
            "initial": 0,
            "exact": 255,
            "append": 271,
            "shorter": 191,
            "branch": 128,
            "compressed": 64,
        }


def test_lifecycle_finds_that_a_long_session_answers_otherwise_than_an_empty_cache(
    run: Run,
) -> None:
    found = told(run, lifecycle.check(run, Settings(run.plan.checks)))
    assert set(found) == {"target-only", "ngram"}
    for verdict in found.values():
        outcomes = {name: part["outcome"] for name, part in verdict.evidence["parts"].items()}
        assert verdict.outcome == "fail"
        assert {n for n, o in outcomes.items() if o == "fail"} == {"a session of 12 turns"}
        assert "token 6" in verdict.sentence
        assert outcomes["cancel in prefill"] == outcomes["cancel in decode"] == "pass"
        assert outcomes["a refused request (too-long)"] == "pass"
        assert outcomes["clean SIGTERM"] == outcomes["memory given back"] == "pass"


def test_requests_that_join_others_are_answered_as_alone(run: Run) -> None:
    found = told(run, parity.check(run, Settings(run.plan.checks)))
    for subject in (
        "target-only against itself, staggered arrivals",
        "ngram against itself, staggered arrivals",
        "ngram against target-only, staggered arrivals",
    ):
        assert found[subject].outcome == "pass", found[subject].sentence


def test_the_lookup_drafters_step_does_not_grow_faster_than_the_targets(run: Run) -> None:
    (verdict,) = cliff.check(run, Settings(run.plan.checks))
    assert (verdict.subject, verdict.outcome) == ("ngram, copy", "pass")


def test_the_launches_ran_the_same_thing(run: Run) -> None:
    found = told(run, identity.check(run, Settings(run.plan.checks)))
    assert found["all launches"].outcome == "pass"
