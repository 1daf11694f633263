"""HumanEval, MBPP and the project's own problems: programs, tested in a sandbox."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from qualify.evals.code_data import load
from qualify.evals.extract import extract
from qualify.evals.judging import Judged, judge
from qualify.evals.nouns import Completion, Problem, ProblemSet, Score, Voice
from qualify.evals.oracle import Rules
from qualify.evals.sandbox.choose import Chosen, choose
from qualify.evals.sandbox.session import driver_source
from qualify.evals.truth import truth_of
from qualify.plan import EvalPlan
from qualify.prompts.prompt import Prompt

SCORER = 1  # raise it when extraction, comparison or limits change
# A base model goes on writing after the function; four, as many as any server takes. A chat
# answer may hold any of these inside its code block, so none is sent there.
STOPS = {
    "humaneval": ("\ndef ", "\nclass ", "\nif __name__", "\nprint("),
    "mbpp": ('\n"""', "\nassert ", "\nif __name__", "\nprint("),
    "minicode": ("\ndef ", "\nclass ", "\nif __name__", "\nprint("),
}
_COMPLETE = (
    "Complete this Python function. Answer with the whole function, with the imports that it"
    " needs, in one ```python code block.\n\n```python\n{text}\n```\n"
)
_WRITE = (
    "Write a Python program for this task. Answer with the whole program in one ```python"
    " code block; the function must be called as in the test.\n\n{text}\n"
)


@dataclass(frozen=True)
class Cage:
    """Which sandbox the user asked for; see `sandbox.choose`."""

    kind: str = "auto"
    image: str | None = None
    unsafe: bool = False


@dataclass
class CodeKind:
    """See `nouns.Kind`. The sandbox is chosen and tested once, and equal programs of one
    problem are run once, so the same bytes are never judged in two ways."""

    name: str
    cage: Cage = field(default_factory=Cage)
    _chosen: Chosen | None = None
    _known: dict[tuple[str, str], Judged] = field(default_factory=dict)

    def measures(self) -> tuple[str, ...]:
        return ("tests",) if self.name == "minicode" else ("base", "plus")

    def problems(self, options: dict[str, Any]) -> ProblemSet:
        return load(self.name, options.get("problems"))

    def cache(self, options: dict[str, Any]) -> str:
        return "any"

    def preflight(self) -> None:
        self.sandbox()

    def sandbox(self) -> Chosen:
        """Raises SandboxError where none holds and none was waived."""
        if self._chosen is None:
            self._chosen = choose(self.cage.kind, image=self.cage.image, unsafe=self.cage.unsafe)
        return self._chosen

    def stop(self, style: str) -> tuple[str, ...]:
        return STOPS[self.name] if style == "base" else ()

    def prompt(
        self, problem: Problem, plan: EvalPlan, voice: Voice, before: Sequence[Completion]
    ) -> Prompt:
        text = problem.text
        if voice.style != "base":
            words = _WRITE if self.name == "mbpp" else _COMPLETE
            text = words.format(text=text.strip("\n"))
        index = plan.problems.index(problem.id)
        return voice.prompt(text, id=f"{plan.id}/{problem.id}", index=index)

    def scorer(self, plan: EvalPlan) -> str:
        told = [SCORER, plan.problems_sha256, driver_source(), self.sandbox().sandbox.identity]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def grade(
        self, plan: EvalPlan, work: Sequence[tuple[Problem, Completion]]
    ) -> Iterator[tuple[Completion, list[Score]]]:
        scorer = self.scorer(plan)
        for problem, completion in work:
            program = extract(
                completion.answer,
                problem.data["entry"],
                prompt="" if self.name == "mbpp" else problem.text,
                continues=completion.record.request.get("style") == "base",
            )
            judged = self.judge(program.code, problem)
            values = {
                "how": list(program.how),
                "program_sha256": hashlib.sha256(
                    program.code.encode("utf-8", "surrogatepass")
                ).hexdigest(),
                "sandbox": self.sandbox().sandbox.name,
                "seconds": judged.seconds,
            }
            yield (
                completion,
                [
                    _score(plan, completion, problem, measure, judged, scorer, values)
                    for measure in self.measures()
                ],
            )

    def judge(self, code: str, problem: Problem) -> Judged:
        """Raises SandboxError where the sandbox or the reference fails, never for the program."""
        if not code.strip():
            return Judged(False, False, "no-code", "the answer holds no Python", 0.0)
        key = (problem.id, code)
        found = self._known.get(key)
        if found is None:
            rules = Rules(self.name, problem.data["entry"], problem.data["atol"])
            truth = truth_of(problem, self.sandbox())
            found = self._known[key] = judge(code, problem, rules, truth, self.sandbox())
        return found


def reference_scores(kind: CodeKind, problems: ProblemSet) -> Iterator[tuple[Problem, Judged]]:
    """Each reference solution, written as a chat answer would be, on the path of an answer."""
    for problem in problems.problems:
        answer = f"Here it is:\n\n```python\n{problem.data['reference']}\n```\n"
        prompt = "" if kind.name == "mbpp" else problem.text
        yield (
            problem,
            kind.judge(extract(answer, problem.data["entry"], prompt=prompt).code, problem),
        )


def _score(
    plan: EvalPlan,
    completion: Completion,
    problem: Problem,
    measure: str,
    judged: Judged,
    scorer: str,
    values: dict[str, Any],
) -> Score:
    good = judged.base if measure == "base" else judged.plus
    outcome: Literal["pass", "fail"] = "pass" if good else "fail"
    return Score(
        eval=plan.id,
        side=completion.side,
        problem=problem.id,
        measure=measure,
        key=completion.key,
        output_sha256=completion.record.output_sha256 or "",
        scorer=scorer,
        outcome=outcome,
        cause=None if good else judged.cause,
        detail=None if good else judged.detail,
        values=values,
    )
