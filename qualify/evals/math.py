"""GSM8K: word problems whose answer is one number."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from qualify.errors import UsageError
from qualify.evals.fences import visible
from qualify.evals.nouns import Completion, Problem, ProblemSet, Score, Voice
from qualify.evals.numbers import final_number, numbers
from qualify.evals.problems import problem_set, read_jsonl
from qualify.plan import EvalPlan
from qualify.prompts.prompt import Prompt

SCORER = 1  # raise it when extraction or comparison changes
MEASURE = "answer"
OVERRIDE = "GSM8K_OVERRIDE_PATH"
DATASET = ("openai/gsm8k", "main", "test")
_ASK = (
    "{text}\n\nReason step by step. Write the final answer, a number alone, on a last line that"
    " begins with ####.\n"
)
# This project's own examples: a base model sees the form once and again.
_SHOTS = (
    (
        "A shelf holds 4 rows of 6 jars. Nine jars are empty. How many jars are full?",
        "There are 4 * 6 = 24 jars. 24 - 9 = 15 of them are full.\n#### 15",
    ),
    (
        "Tickets cost $3 for a child and $5 for an adult. What do 2 adults and 3 children pay?",
        "The adults pay 2 * 5 = 10 dollars. The children pay 3 * 3 = 9 dollars."
        " Together that is 10 + 9 = 19 dollars.\n#### 19",
    ),
)
_BASE = "Question: {q}\nAnswer: {a}\n\n"
CLOSE = Fraction(1, 1_000_000)  # of the value: 0.333333 is a third


@dataclass
class MathKind:
    """See `nouns.Kind`."""

    name: str = "gsm8k"

    def measures(self) -> tuple[str, ...]:
        return (MEASURE,)

    def problems(self, options: dict[str, Any]) -> ProblemSet:
        """From a JSONL file of `question` and `answer`, or through `datasets`.

        GSM8K_OVERRIDE_PATH names a file for machines without a network, as evalplus's own
        variables do for its data; the problems' hash says what was asked either way.
        """
        path = options.get("problems") or os.environ.get(OVERRIDE)
        if path is not None:
            return problem_set(self.name, _problems(read_jsonl(Path(path)), path), path)
        rows, source = _download()
        return problem_set(self.name, _problems(rows, source), source)

    def cache(self, options: dict[str, Any]) -> str:
        return "any"

    def preflight(self) -> None:
        return

    def stop(self, style: str) -> tuple[str, ...]:
        """A base model goes on with a problem of its own."""
        return ("\nQuestion:", "\n\nQuestion:") if style == "base" else ()

    def prompt(
        self, problem: Problem, plan: EvalPlan, voice: Voice, before: Sequence[Completion]
    ) -> Prompt:
        if voice.style == "base":
            shots = "".join(_BASE.format(q=q, a=a) for q, a in _SHOTS)
            text = f"{shots}Question: {problem.text}\nAnswer:"
        else:
            text = _ASK.format(text=problem.text)
        index = plan.problems.index(problem.id)
        return voice.prompt(text, id=f"{plan.id}/{problem.id}", index=index)

    def scorer(self, plan: EvalPlan) -> str:
        return hashlib.sha256(json.dumps([SCORER, plan.problems_sha256]).encode()).hexdigest()

    def grade(
        self, plan: EvalPlan, work: Sequence[tuple[Problem, Completion]]
    ) -> Iterator[tuple[Completion, list[Score]]]:
        for problem, completion in work:
            yield completion, [_score(plan, problem, completion, self.scorer(plan))]


def _problems(rows: Iterable[Mapping[str, Any]], source: str) -> Iterator[Problem]:
    for number, row in enumerate(rows):
        question, answer = row.get("question"), row.get("answer")
        gold = numbers(str(answer).rpartition("####")[2]) if answer is not None else []
        if not isinstance(question, str) or len(gold) != 1:
            raise UsageError(
                f"{source}: problem {number} has no question with an answer that ends in #### x.",
                "Give JSONL with question and answer, as GSM8K has them.",
            )
        yield Problem(f"gsm8k/{number}", question, {"answer": str(gold[0][0])})


def _download() -> tuple[Iterable[Mapping[str, Any]], str]:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise UsageError(
            "GSM8K comes through the `datasets` library, which is not installed.",
            "pip install datasets, or name a file: gsm8k: {problems: FILE}, --problems FILE or"
            f" {OVERRIDE}.",
        ) from None
    name, config, split = DATASET
    try:
        return datasets.load_dataset(name, config, split=split), f"{name}, {split}"
    except Exception as error:  # the library raises many kinds, some of other packages
        raise UsageError(
            f"GSM8K could not be loaded through `datasets` ({type(error).__name__}: {error}).",
            f"Name a file: gsm8k: {{problems: FILE}}, --problems FILE or {OVERRIDE}.",
        ) from None


def _score(plan: EvalPlan, problem: Problem, completion: Completion, scorer: str) -> Score:
    cut = completion.record.finish_reason == "length"
    seen = visible(completion.answer)
    read = final_number(seen.text, cut=cut)
    wanted = Fraction(problem.data["answer"])
    good = read.value is not None and abs(read.value - wanted) <= abs(wanted) * CLOSE
    cause = None if good else "wrong-answer"
    if read.value is None:
        cause = "cut" if cut else "no-number"
    outcome: Literal["pass", "fail"] = "pass" if good else "fail"
    return Score(
        eval=plan.id,
        side=completion.side,
        problem=problem.id,
        measure=MEASURE,
        key=completion.key,
        output_sha256=completion.record.output_sha256 or "",
        scorer=scorer,
        outcome=outcome,
        cause=cause,
        detail=None if good else f"{read.text or 'no number'}, expected {problem.data['answer']}",
        values={"how": read.how, "read": read.text, "notes": list(seen.notes)},
    )
