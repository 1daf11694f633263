"""The problems of the code evaluations, from evalplus's data, a local file or this project."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qualify.errors import UsageError
from qualify.evals.nouns import Problem, ProblemSet
from qualify.evals.oracle import evalplus_missing
from qualify.evals.problems import problem_set, read_jsonl
from qualify.evals.sandbox.values import encode
from qualify.paths import data_root

MINI = "fixtures/problems/mini-code.jsonl"


def load(name: str, path: str | None) -> ProblemSet:
    """humaneval, mbpp or minicode. Raises UsageError where it cannot be read or fetched.

    Without a path HumanEval+ and MBPP+ come through evalplus: from HUMANEVAL_OVERRIDE_PATH or
    MBPP_OVERRIDE_PATH, its cache folder, or its own download.
    """
    if name == "minicode":
        file = Path(path) if path is not None else data_root() / MINI
        return problem_set(name, [_problem(name, t) for t in _tasks(file)], str(file))
    if path is not None:
        tasks: Iterable[Mapping[str, Any]] = _tasks(Path(path))
        if name == "mbpp":
            tasks = [_typed(task) for task in tasks]
        source = path
    else:
        tasks, source = _evalplus(name)
    return problem_set(name, [_problem(name, task) for task in tasks], source)


def _tasks(file: Path) -> list[dict[str, Any]]:
    tasks = list(read_jsonl(file))
    for task in tasks:
        for key in ("task_id", "prompt", "entry_point", "canonical_solution", "base_input"):
            if key not in task:
                raise UsageError(
                    f"{file}: {task.get('task_id', 'a problem')} lacks the field {key}.",
                    "It needs task_id, prompt, entry_point, canonical_solution and base_input.",
                )
    return tasks


def _evalplus(name: str) -> tuple[list[Mapping[str, Any]], str]:
    """Tasks with their inputs as Python values."""
    try:
        from evalplus import data
        from evalplus.data import humaneval, mbpp
    except ImportError as error:
        raise UsageError(*evalplus_missing(error)) from None
    variable = f"{name.upper()}_OVERRIDE_PATH"
    path = humaneval.HUMANEVAL_OVERRIDE_PATH if name == "humaneval" else mbpp.MBPP_OVERRIDE_PATH
    read = data.get_human_eval_plus if name == "humaneval" else data.get_mbpp_plus
    try:
        with contextlib.redirect_stdout(sys.stderr):  # it tells of its download on stdout
            tasks = list(read().values())
    except Exception as error:  # its download raises what its libraries raise
        raise UsageError(
            f"evalplus could not give the problems of {name}: {type(error).__name__}: {error}",
            f"Name a file: {name}: {{problems: FILE}} or --problems FILE, or set {variable}.",
        ) from None
    return tasks, str(path) if path else "evalplus"


def _typed(task: Mapping[str, Any]) -> dict[str, Any]:
    """MBPP+ keeps tuples, sets and complex numbers as JSON lists and texts."""
    try:
        from evalplus.data.mbpp import mbpp_deserialize_inputs
    except ImportError as error:
        raise UsageError(*evalplus_missing(error)) from None
    inputs = {k: mbpp_deserialize_inputs(task["task_id"], task[k]) for k in _inputs(task)}
    return {**task, **inputs}


def _inputs(task: Mapping[str, Any]) -> list[str]:
    return [k for k in ("base_input", "plus_input") if k in task]


def _problem(name: str, task: Mapping[str, Any]) -> Problem:
    """data: entry, reference (a whole program), base and plus (encoded arguments), atol."""
    whole = name == "mbpp"
    reference = ("" if whole else str(task["prompt"])) + str(task["canonical_solution"])
    return Problem(
        id=str(task["task_id"]),
        text=str(task["prompt"]),
        data={
            "entry": task["entry_point"],
            "reference": reference,
            "base": [encode(list(given)) for given in task["base_input"]],
            "plus": [encode(list(given)) for given in task.get("plus_input") or ()],
            "atol": float(task.get("atol") or 0.0),
        },
    )
