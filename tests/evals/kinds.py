"""A kind of evaluation that is judged without a sandbox, for tests of everything around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from qualify.engines.protocol import Sampling
from qualify.errors import UsageError
from qualify.evals.nouns import Completion, Problem, ProblemSet, Score, Voice
from qualify.evals.planned import Bench
from qualify.evals.problems import problem_set
from qualify.plan import EvalPlan
from qualify.prompts.prompt import Prompt


@dataclass
class Parity:
    """Passes an answer whose first word is `wanted[problem]`, or any answer at all."""

    wanted: dict[str, str]
    count: int = 6
    cold: bool = False
    turns: int = 1
    refuses: bool = False
    name: str = "parity"

    def measures(self) -> tuple[str, ...]:
        return ("word",)

    def problems(self, options: dict[str, Any]) -> ProblemSet:
        made = [
            Problem(f"p{n}.{t}", f" w{n} w{t}", session=f"s{n}" if self.turns > 1 else None)
            for n in range(self.count)
            for t in range(self.turns)
        ]
        return problem_set(self.name, made, "made here")

    def cache(self, options: dict[str, Any]) -> str:
        return "cold" if self.cold else "any"

    def preflight(self) -> None:
        return

    def stop(self, style: str) -> tuple[str, ...]:
        return ()

    def prompt(
        self, problem: Problem, plan: EvalPlan, voice: Voice, before: Sequence[Completion]
    ) -> Prompt:
        earlier = "".join(c.answer for c in before)
        return voice.prompt(f"{earlier}{problem.text}", id=problem.id, index=0)

    def scorer(self, plan: EvalPlan) -> str:
        return "words-1"

    def grade(
        self, plan: EvalPlan, work: Sequence[tuple[Problem, Completion]]
    ) -> Iterator[tuple[Completion, list[Score]]]:
        if self.refuses:
            raise UsageError("Nothing can be scored here.", "Score it elsewhere.")
        for problem, answer in work:
            first = answer.answer.split(" ")[1]
            right = self.wanted.setdefault(problem.id, first) == first
            score = Score(
                plan.id,
                answer.side,
                problem.id,
                "word",
                answer.key,
                answer.record.output_sha256 or "",
                self.scorer(plan),
                "pass" if right else "fail",
                None if right else "wrong-answer",
            )
            yield answer, [score]


def bench(kind: Parity, *, concurrency: int = 1) -> Bench:
    problems = kind.problems({})
    plan = EvalPlan(
        id="parity",
        name="parity",
        measures=kind.measures(),
        style="base",
        sampling=Sampling(output_tokens=6, ignore_eos=False),
        concurrency=concurrency,
        cache=kind.cache({}),
        first_token_timeout_s=20.0,
        problems=problems.ids,
        problems_sha256=problems.sha256,
    )
    return Bench((plan,), {"parity": problems}, {"parity": kind})
