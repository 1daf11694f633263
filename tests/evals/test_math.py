"""GSM8K: the published answers pass, three broken ones in one mode are three regressions."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qualify.campaign.evals import MathEval, Subset
from qualify.campaign.schema import SamplingSpec
from qualify.checks.all import run_checks
from qualify.errors import UsageError
from qualify.evals.compare import evaluate
from qualify.evals.math import MathKind
from qualify.evals.numbers import final_number
from qualify.evals.planned import Bench, plan_one
from qualify.evals.problems import draw
from qualify.evals.voice import Speaker
from qualify.plan import EvalPlan
from qualify.records.store import load_run
from qualify.report.build import build_report
from qualify.run.runner import run_campaign
from tests.evals.conftest import missing
from tests.run.drive import build, engine, plan

DATA = Path(os.environ.get("QUALIFY_DATA", Path(__file__).parents[3] / "shared" / "data"))
RECOMPUTE = Path(__file__).parents[2] / "scripts" / "recompute.py"
SIDES = ("target-only", "mtp")
DRESSES = (
    "{a} is it.\n#### {a}",
    "So the answer is ${a}.",
    "Adding gives 1 + 2 = 3 first.\n\n\\boxed{{{a}}}",
    "<think>perhaps 4711</think>The answer is {a}",
)


@pytest.fixture
def public() -> Path:
    file = DATA / "gsm8k-test.jsonl"
    if not file.is_file():
        missing(f"{file} is not there: set QUALIFY_DATA to the folder that holds it")
    return file


def test_every_published_answer_is_read_as_its_number(public: Path) -> None:
    problems = MathKind().problems({"problems": str(public)}).problems
    assert len(problems) == 1319
    rows = [json.loads(line) for line in public.read_text("utf-8").splitlines()]
    for problem, row in zip(problems, rows, strict=True):
        read = final_number(row["answer"])
        assert read.how == "hashes"
        assert str(read.value) == problem.data["answer"], problem.id


def test_a_seeded_twenty_pass_and_three_broken_in_one_mode_are_three_regressions(
    tmp_path: Path, public: Path
) -> None:
    the_bench = bench(public, subset=Subset(seed=11, count=20))
    (item,) = the_bench.plans
    chosen = the_bench.sets["gsm8k"].problems
    broken = {chosen[n].id for n in (2, 9, 17)}
    folder = go(tmp_path, the_bench, broken)
    run = load_run(folder)
    found = evaluate(run.plan, run.completions, run.scores)
    assert [(r.passed, r.problems, r.subset) for r in found.results] == [
        (20, 20, "11:20"),
        (17, 20, "11:20"),
    ]
    (pair,) = found.pairs
    assert {c.problem for c in pair.regressions} == broken
    verdicts = {v.subject: v.outcome for v in run_checks(run) if v.check == "evals"}
    assert verdicts == {
        "gsm8k (answer), target-only": "pass",
        "gsm8k (answer), mtp": "fail",
    }
    (speed,) = found.speed
    assert speed.compared + sum(speed.left_out.values()) == 20
    assert speed.accept_length is not None
    page = build_report(folder).read_text("utf-8")
    for problem in broken:
        assert f'<th scope="row">{problem}</th>' in page
    assert "Speed on the evaluations" in page
    again = subprocess.run(
        [sys.executable, "-S", str(RECOMPUTE), str(folder)], capture_output=True, text=True
    )
    assert again.returncode == 0, again.stdout
    assert (
        item.problems_sha256 == draw(MathKind().problems({"problems": str(public)}), 11, 20).sha256
    )


def bench(file: Path, subset: Subset | None = None) -> Bench:
    kind = MathKind()
    asking = MathEval(problems=str(file), subset=subset, style="base", output_tokens=64)
    item, problems = plan_one("gsm8k", kind, asking, SamplingSpec(output_tokens=64), 20.0)
    return Bench((item,), {item.id: problems}, {item.id: kind})


def go(folder: Path, the_bench: Bench, broken: set[str]) -> Path:
    made = plan((), SIDES)
    files = []
    for name, wrong in (("good", set()), ("bad", broken)):
        file = folder / f"{name}.jsonl"
        with file.open("w") as out:
            for n, problem in enumerate(the_bench.sets["gsm8k"].problems):
                answer = "12345.5" if problem.id in wrong else problem.data["answer"]
                told = DRESSES[n % len(DRESSES)].format(a=answer)
                out.write(json.dumps({"key": problem.text, "answer": told}) + "\n")
        files.append(str(file))
    launches = tuple(dataclasses.replace(x, evals=the_bench.plans) for x in made.launches)
    resolver = engine(
        folder, "--step-ms", "1", "--ttft-ms", "1", "--canned", files[0],
        spec_options=("--accept", "2", "--width", "3", "--canned", files[1]),
    )  # fmt: skip
    run_campaign(
        dataclasses.replace(made, launches=launches),
        out=folder / "run",
        resume=False,
        resolved={side: resolver(side) for side in SIDES},
        build=build,
        start_timeout_s=30.0,
        bench=the_bench,
    )
    return folder / "run"


def test_a_base_model_is_shown_the_form_and_a_chat_model_is_told_it(tmp_path: Path) -> None:
    file = tmp_path / "two.jsonl"
    file.write_text('{"question": "How many?", "answer": "Two.\\n#### 2"}\n')
    the_bench = bench(file)
    (item,), kind = the_bench.plans, MathKind()
    problem = the_bench.sets["gsm8k"].problems[0]
    shown = kind.prompt(problem, item, Speaker("base"), []).text
    assert shown.endswith("Question: How many?\nAnswer:")
    assert shown.count("####") == 2
    told = kind.prompt(problem, item, Speaker("server-chat"), []).text
    assert told.startswith("How many?")
    assert "####" in told
    assert kind.stop("base") != ()
    assert kind.stop("chat") == ()


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    file.write_text('{"question": "How many?", "answer": "two"}\n')
    with pytest.raises(UsageError, match="problem 0 has no question with an answer"):
        MathKind().problems({"problems": str(file)})


def test_a_plan_is_the_same_wherever_the_problems_came_from(tmp_path: Path, public: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(public.read_bytes())
    plans: list[EvalPlan] = [bench(f).plans[0] for f in (public, copy)]
    assert plans[0].problems_sha256 == plans[1].problems_sha256
