"""Code evaluations through a server, extraction, the sandbox and the verdicts."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qualify.campaign.evals import CodeEval, Subset
from qualify.campaign.schema import SamplingSpec
from qualify.checks.all import run_checks
from qualify.evals.code import Cage, CodeKind, reference_scores
from qualify.evals.compare import evaluate
from qualify.evals.extract import extract
from qualify.evals.nouns import Problem, ProblemSet
from qualify.evals.planned import Bench, plan_one
from qualify.evals.problems import draw
from qualify.evals.sandbox.bubblewrap import Bubblewrap
from qualify.records.store import load_run
from qualify.report.build import build_report
from qualify.run.runner import run_campaign
from tests.evals.conftest import missing
from tests.run.drive import build, engine, plan

SIDES = ("target-only", "mtp")
ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("QUALIFY_DATA", ROOT.parent / "shared" / "data"))
FILES = {"humaneval": "HumanEvalPlus-v0.1.10.jsonl.gz", "mbpp": "MbppPlus-v0.2.0.jsonl.gz"}


@pytest.fixture(autouse=True, scope="module")
def truth_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def minicode(bubblewrap: Bubblewrap) -> CodeKind:
    return CodeKind("minicode", Cage("bubblewrap"))


def bench(kind: CodeKind, count: int | None = None, style: str = "auto") -> Bench:
    subset = Subset(seed=7, count=count) if count else None
    asking = CodeEval(subset=subset, concurrency=4, style=style)  # type: ignore[arg-type]
    sampling = SamplingSpec(output_tokens=2000, ignore_eos=False)
    item, problems = plan_one("minicode", kind, asking, sampling, 30.0)
    return Bench((item,), {item.id: problems}, {item.id: kind})


def canned(file: Path, problems: ProblemSet, broken: set[str]) -> str:
    """Right answers in several dresses; those of `broken` return something else."""
    dresses = ("```python\n{}```", "Sure!\n\n```\n{}```\nDone.", "{}", "<think>hm</think>{}</s>")
    with file.open("w") as out:
        for number, problem in enumerate(problems.problems):
            code = problem.data["reference"]
            if problem.id in broken:
                code += f"\n{problem.data['entry']} = lambda *given: 'broken'\n"
            answer = dresses[number % len(dresses)].format(code)
            out.write(json.dumps({"key": problem.text.strip(), "answer": answer}) + "\n")
    return str(file)


def go(folder: Path, the_bench: Bench, good: str, bad: str, *, resume: bool = False) -> Path:
    made = plan((), SIDES)
    launches = tuple(dataclasses.replace(x, evals=the_bench.plans) for x in made.launches)
    resolver = engine(
        folder, "--step-ms", "0", "--ttft-ms", "0", "--canned", good,
        spec_options=("--accept", "15", "--width", "16", "--canned", bad),
    )  # fmt: skip
    run_campaign(
        dataclasses.replace(made, launches=launches),
        out=folder / "run",
        resume=resume,
        resolved={side: resolver(side) for side in SIDES},
        build=build,
        start_timeout_s=30.0,
        bench=the_bench,
    )
    return folder / "run"


def test_three_broken_answers_in_one_mode_are_exactly_three_regressions(
    tmp_path: Path, minicode: CodeKind
) -> None:
    the_bench = bench(minicode)
    problems = the_bench.sets["minicode"]
    broken = {"Mini/4", "Mini/17", "Mini/33"}
    good = canned(tmp_path / "good.jsonl", problems, set())
    bad = canned(tmp_path / "bad.jsonl", problems, broken)
    folder = go(tmp_path, the_bench, good, bad)
    run = load_run(folder)
    found = evaluate(run.plan, run.completions, run.scores)
    assert [(r.side, r.passed, r.problems) for r in found.results] == [
        ("target-only", 40, 40),
        ("mtp", 37, 40),
    ]
    (pair,) = found.pairs
    assert {c.problem for c in pair.regressions} == broken
    assert {c.cause for c in pair.regressions} == {"wrong-answer"}
    assert pair.gains == ()
    assert pair.identical == 37
    assert pair.p_value == pytest.approx(0.25)  # 3 of 3 one way: 2 * 0.5^3
    assert found.results[1].causes == {"wrong-answer": 3}
    verdicts = {v.subject: v for v in run_checks(run) if v.check == "evals"}
    assert verdicts["minicode (tests), target-only"].outcome == "pass"
    assert verdicts["minicode (tests), mtp"].outcome == "fail"
    assert "3 regressions and 0 gains" in verdicts["minicode (tests), mtp"].sentence
    page = build_report(folder).read_text("utf-8")
    assert "<td>mtp</td>" in page
    for problem in broken:
        assert f'<th scope="row">{problem}</th>' in page
    summary = json.loads((folder / "summary.json").read_text())
    assert len(summary["evals"]["pairs"][0]["regressions"]) == 3


def test_answers_that_changed_are_scored_again(tmp_path: Path, minicode: CodeKind) -> None:
    the_bench = bench(minicode, 4)
    problems = the_bench.sets["minicode"]
    good = canned(tmp_path / "good.jsonl", problems, set())
    folder = go(tmp_path, the_bench, good, good)
    file = folder / "evals.jsonl"
    told = [json.loads(line) for line in file.read_text().splitlines()]
    told[0]["record"]["output_text"] = "I do not know."
    told[0]["record"]["output_sha256"] = "0" * 64
    file.write_text("".join(json.dumps(line) + "\n" for line in told))
    run = load_run(folder)
    assert evaluate(run.plan, run.completions, run.scores).results[0].passed is None
    go(tmp_path, the_bench, good, good, resume=True)
    run = load_run(folder)
    found = evaluate(run.plan, run.completions, run.scores)
    assert [(r.passed, r.subset) for r in found.results] == [(3, "7:4"), (4, "7:4")]
    assert found.results[0].causes == {"no-code": 1}


def test_the_projects_own_problems_pass_with_their_own_solutions(minicode: CodeKind) -> None:
    problems = minicode.problems({})
    assert len(problems.problems) == 40
    judged = {p.id: j for p, j in reference_scores(minicode, problems)}
    assert {k: j for k, j in judged.items() if not j.plus} == {}


def test_examples_in_the_prompts_are_what_the_solutions_give() -> None:
    import doctest

    attempted = 0
    for problem in CodeKind("minicode").problems({}).problems:
        module: dict[str, Any] = {}
        exec(problem.data["reference"], module)
        function = module[problem.data["entry"]]
        runner = doctest.DocTestRunner(verbose=False)
        for example in doctest.DocTestFinder().find(function, problem.id, globs=module):
            result = runner.run(example)
            assert result.failed == 0, problem.id
            attempted += result.attempted
    assert attempted == 40


@pytest.fixture(params=["humaneval", "mbpp"])
def public(request: pytest.FixtureRequest, bubblewrap: Bubblewrap) -> tuple[CodeKind, Path]:
    file = DATA / FILES[request.param]
    if not file.is_file():
        missing(f"{file} is not there: set QUALIFY_DATA to the folder that holds it")
    pytest.importorskip("evalplus", reason="pip install --no-deps evalplus==0.3.1")
    return CodeKind(request.param, Cage("bubblewrap")), file


def test_a_seeded_twenty_of_each_public_set_pass_with_their_reference_solutions(
    public: tuple[CodeKind, Path],
) -> None:
    kind, file = public
    problems = draw(kind.problems({"problems": str(file)}), 11, 20)
    assert problems.subset == "11:20"
    judged = {p.id: j for p, j in reference_scores(kind, problems)}
    assert {k: (j.base, j.plus, j.cause, j.detail) for k, j in judged.items() if not j.plus} == {}
    assert len(judged) == 20


@pytest.mark.parametrize("name", ["HumanEval/32"])
def test_the_root_of_a_polynomial_counts_where_the_polynomial_is_near_zero(
    name: str, bubblewrap: Bubblewrap
) -> None:
    """evalplus 0.3.1 fails every answer to it, its own solution included."""
    file = DATA / FILES["humaneval"]
    if not file.is_file():
        missing(f"{file} is not there: set QUALIFY_DATA to the folder that holds it")
    kind = CodeKind("humaneval", Cage("bubblewrap"))
    problem = next(p for p in kind.problems({"problems": str(file)}).problems if p.id == name)
    assert kind.judge(problem.data["reference"], problem).plus
    other = problem.text + "    return 0.123\n"
    assert kind.judge(other, problem).cause == "wrong-answer"


HARD = [
    ("while True:\n    pass\ndef add(a, b): return a + b\n", "timeout"),
    ("def add(a, b):\n    import threading\n    threading.Event().wait()\n", "timeout"),
    ("import os\nos._exit(0)\ndef add(a, b): return a + b\n", "exited"),
    ("def add(a, b):\n    raise SystemExit(0)\n", "error"),
    ("def add(a, b):\n    return list(range(10**11))\n", "memory"),
    ("def plus(a, b):\n    return a + b\n", "no-definition"),
    ("def add(a, b):\n    return str(a + b)\n", "wrong-answer"),
    ("def add(a, b):\n    return a + b if a < 10 else 0\n", "wrong-answer"),
    ("", "no-code"),
]


@pytest.mark.parametrize(("code", "cause"), HARD, ids=[c for _, c in HARD])
def test_what_fails_says_why(code: str, cause: str, minicode: CodeKind) -> None:
    problem = minicode.problems({}).problems[0]
    small = dataclasses.replace(problem, data={**problem.data})
    judged = minicode.judge(code, small)
    assert (judged.base, judged.plus, judged.cause) == (False, False, cause), judged


def test_a_wrong_plus_input_leaves_base_passed(bubblewrap: Bubblewrap) -> None:
    kind = CodeKind("humaneval", Cage("bubblewrap"))
    problem = Problem(
        "Own/0",
        "def inc(x):\n",
        {"entry": "inc", "reference": "def inc(x):\n    return x + 1\n",
         "base": [["l", 1]], "plus": [["l", -1]], "atol": 0.0},
    )  # fmt: skip
    judged = kind.judge("def inc(x):\n    return abs(x) + 1\n", problem)
    assert (judged.base, judged.plus, judged.cause) == (True, False, "wrong-answer")
    assert judged.detail is not None
    assert "plus test 0" in judged.detail


def test_equal_programs_of_one_problem_run_once(minicode: CodeKind) -> None:
    problem = minicode.problems({}).problems[0]
    code = extract(f"```python\n{problem.data['reference']}```", "add").code
    first = minicode.judge(code, problem)
    began = time.monotonic()
    assert minicode.judge(code, problem) is first
    assert time.monotonic() - began < 0.05


def test_base_models_get_stop_texts_and_chat_models_none(minicode: CodeKind) -> None:
    assert minicode.stop("chat") == minicode.stop("server-chat") == ()
    assert "\ndef " in minicode.stop("base")
    assert len(minicode.stop("base")) <= 4
