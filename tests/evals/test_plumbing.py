"""Evaluations on the scripted engine: asked in every mode, resumed, judged, never mixed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qualify.checks.all import run_checks
from qualify.checks.verdict import Verdict
from qualify.evals.compare import Evaluations, evaluate
from qualify.plan import LaunchPlan, Plan, Side
from qualify.records.store import load_run
from qualify.run import events as e
from qualify.run.runner import run_campaign
from tests.evals.kinds import Parity, bench
from tests.run.drive import build, engine, plan

SIDES = ("target-only", "mtp")


def planned(the_bench: Any, sides: Sequence[str] = SIDES, cells: Sequence[Any] = ()) -> Plan:
    made = plan(cells, sides)
    launches = tuple(dataclasses.replace(x, evals=the_bench.plans) for x in made.launches)
    return dataclasses.replace(made, launches=launches)


def go(
    folder: Path,
    kind: Parity,
    *options: str,
    spec_options: Sequence[str] = ("--accept", "3,0,2"),
    resume: bool = False,
    watch: e.Watcher = e.unwatched,
    concurrency: int = 1,
) -> Path:
    the_bench = bench(kind, concurrency=concurrency)
    the_plan = planned(the_bench)
    resolver = engine(folder, "--eos-after", "4", *options, spec_options=spec_options)
    run_campaign(
        the_plan,
        out=folder / "run",
        resume=resume,
        resolved={side: resolver(side) for side in SIDES},
        build=build,
        watch=watch,
        start_timeout_s=20.0,
        bench=the_bench,
    )
    return folder / "run"


def outcome(folder: Path) -> tuple[Evaluations, dict[str, Verdict]]:
    run = load_run(folder)
    found = evaluate(run.plan, run.completions, run.scores)
    return found, {v.subject: v for v in run_checks(run) if v.check == "evals"}


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_mode_answers_every_problem_and_lossless_modes_agree(tmp_path: Path) -> None:
    folder = go(tmp_path, Parity({}), concurrency=3)
    found, verdicts = outcome(folder)
    assert [(r.side, r.passed, r.problems) for r in found.results] == [
        ("target-only", 6, 6),
        ("mtp", 6, 6),
    ]
    (pair,) = found.pairs
    assert (len(pair.regressions), len(pair.gains), pair.identical, pair.p_value) == (0, 0, 6, 1.0)
    assert {v.outcome for v in verdicts.values()} == {"pass"}
    answers = lines(folder / "evals.jsonl")
    assert len(answers) == 12
    assert len({a["basis"] for a in answers}) == 2, "one basis a mode"
    assert {a["record"]["usage"]["completion_tokens"] for a in answers} == {4}
    assert any(a["record"]["speculation"]["V"] for a in answers if a["record"]["side"] == "mtp")


def test_an_answer_that_changed_is_a_regression_and_is_named(tmp_path: Path) -> None:
    folder = go(tmp_path, Parity({}), spec_options=("--accept", "1", "--diverge-at", "0"))
    found, verdicts = outcome(folder)
    (pair,) = found.pairs
    assert [c.problem for c in pair.regressions] == [f"p{n}.0" for n in range(6)]
    assert pair.p_value == pytest.approx(2 * 0.5**6)
    assert pair.identical == 0
    verdict = verdicts["parity (word), mtp"]
    assert verdict.outcome == "fail"
    assert "6 regressions" in verdict.sentence
    assert "p0.0" in verdict.sentence


def test_an_evaluation_that_lacks_an_answer_is_not_run_and_resumes(tmp_path: Path) -> None:
    folder = go(tmp_path, Parity({}), "--fault", "4=http-500")
    found, verdicts = outcome(folder)
    assert [r.passed for r in found.results] == [None, None]
    assert verdicts["parity (word), mtp"].outcome == "not-run"
    assert "5 of 6 problems have an answer" in verdicts["parity (word), mtp"].sentence
    assert len(lines(folder / "scores.jsonl")) == 10

    asked: list[e.CellStarted] = []
    go(
        tmp_path,
        Parity({}),
        resume=True,
        watch=lambda x: asked.append(x) if isinstance(x, e.CellStarted) else None,
    )
    assert [(x.cell, x.requests) for x in asked if x.cell.startswith("eval:")] == [
        ("eval:parity", 1),
        ("eval:parity", 1),
    ]
    found, verdicts = outcome(folder)
    assert [r.passed for r in found.results] == [6, 6]
    assert {v.outcome for v in verdicts.values()} == {"pass"}
    assert len(lines(folder / "evals.jsonl")) == 14, "append-only: failures stay"


def test_a_finished_evaluation_is_neither_asked_nor_scored_again(tmp_path: Path) -> None:
    folder = go(tmp_path, Parity({}))
    before = {f: (folder / f).read_bytes() for f in ("evals.jsonl", "scores.jsonl")}
    seen: list[e.Event] = []
    go(tmp_path, Parity({}), resume=True, watch=seen.append)
    assert not any(isinstance(x, e.LaunchStarting) for x in seen)
    assert {f: (folder / f).read_bytes() for f in before} == before


def test_f112_answers_of_another_engine_under_the_same_name_are_not_mixed_in(
    tmp_path: Path,
) -> None:
    folder = go(tmp_path, Parity({}))
    file = folder / "evals.jsonl"
    told = lines(file)
    for line in told[:2]:  # as if an earlier image had given the first two
        line["basis"] = "0" * 64
    file.write_text("".join(json.dumps(line) + "\n" for line in told))
    found, verdicts = outcome(folder)
    assert found.results[0].passed is None
    assert "different engines" in (found.results[0].unfinished or "")
    assert verdicts["parity (word), target-only"].outcome == "not-run"


def test_scoring_that_cannot_be_done_leaves_it_not_run_with_the_answers_kept(
    tmp_path: Path,
) -> None:
    notes: list[str] = []
    folder = go(
        tmp_path,
        Parity({}, refuses=True),
        watch=lambda x: notes.append(x.text) if isinstance(x, e.Note) else None,
    )
    _, verdicts = outcome(folder)
    assert {v.outcome for v in verdicts.values()} == {"not-run"}
    assert "0 of 6 answers are scored" in verdicts["parity (word), mtp"].sentence
    assert any("Score it elsewhere" in n for n in notes)
    go(tmp_path, Parity({}), resume=True)
    _, verdicts = outcome(folder)
    assert {v.outcome for v in verdicts.values()} == {"pass"}


def test_a_cold_evaluation_clears_the_cache_before_each_session_and_not_inside_it(
    tmp_path: Path,
) -> None:
    folder = go(tmp_path, Parity({}, count=3, cold=True, turns=2))
    answers = [a for a in lines(folder / "evals.jsonl") if a["record"]["side"] == "mtp"]
    assert [a["problem"] for a in answers] == [f"p{n}.{t}" for n in range(3) for t in range(2)]
    cached = [a["record"]["usage"]["cached_tokens"] for a in answers]
    assert cached[0::2] == [0, 0, 0]
    assert [a["record"]["cache"]["flush_status"] for a in answers] == [200] * 6
    assert all("counters" in a["evidence"] for a in answers)


def test_scores_of_an_older_scorer_do_not_count_as_todays(tmp_path: Path) -> None:
    class Stricter(Parity):
        def scorer(self, plan: Any) -> str:
            return "words-2"

    folder = go(tmp_path, Parity({}))
    go(tmp_path, Stricter({}), resume=True)
    assert [s["scorer"] for s in lines(folder / "scores.jsonl")] == ["words-1"] * 12 + [
        "words-2"
    ] * 12
    found, _ = outcome(folder)
    assert [r.passed for r in found.results] == [6, 6]


def test_each_side_answers_once_in_its_first_launch() -> None:
    from qualify.planning.build import with_evals

    side, other = (Side(n, n, None, {}, {}) for n in SIDES)
    launches = [
        LaunchPlan("r1.mtp", 1, other, ()),
        LaunchPlan("r1.target-only", 1, side, ()),
        LaunchPlan("r2.target-only", 2, side, ()),
        LaunchPlan("r1.target-only.again", 1, side, (), "self-parity"),
    ]
    made = with_evals(launches, bench(Parity({})).plans)
    assert [bool(x.evals) for x in made] == [True, True, False, False]
