"""One program against the tests of one problem: which pass, and why not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from qualify.evals.nouns import Problem
from qualify.evals.oracle import Rules, right
from qualify.evals.sandbox.choose import Chosen, calibrate, scaled
from qualify.evals.sandbox.nouns import Call, Job, Limits, Ran
from qualify.evals.sandbox.session import run
from qualify.evals.truth import Truth

LEAST_CALL_S = 1.0  # evalplus's own: a call may take this long, or 4 times the reference
FACTOR = 4.0
LEAST_TOTAL_S = 60.0
DEFINE_S = 2.0  # imports and definitions
LEAST_MEMORY = 1 << 30
# Causes of the run's end, and those of one call's error.
CAUSES = {"exited": "exited", "crashed": "crashed", "output": "output", "error": "error"}


@dataclass(frozen=True)
class Judged:
    """passed: of base inputs, and of all; cause and detail of the first that did not."""

    base: bool
    plus: bool
    cause: str | None
    detail: str | None
    seconds: float


def limits_of(truth: Truth) -> tuple[Limits, list[float]]:
    """Limits at the reference speed, and each call's own."""
    calls = [max(LEAST_CALL_S, FACTOR * s) for s in truth.cpu_s]
    limits = Limits(
        define_s=DEFINE_S,
        call_s=max(calls, default=LEAST_CALL_S),
        total_s=max(LEAST_TOTAL_S, FACTOR * sum(truth.cpu_s)),
        memory_bytes=max(LEAST_MEMORY, 2 * truth.peak_bytes + (256 << 20)),
    )
    return limits, calls


def judge(code: str, problem: Problem, rules: Rules, truth: Truth, chosen: Chosen) -> Judged:
    """Run and compare. A timeout counts only when it comes twice: the second time with limits
    that follow a fresh look at how fast this machine is, so that load alone fails nothing."""
    first = _once(code, problem, rules, truth, chosen)
    if first.cause != "timeout":
        return first
    again = max(chosen.slowdown, calibrate(chosen.sandbox))
    return _once(code, problem, rules, truth, dataclasses.replace(chosen, slowdown=again))


def _once(code: str, problem: Problem, rules: Rules, truth: Truth, chosen: Chosen) -> Judged:
    inputs = [*problem.data["base"], *problem.data["plus"]]
    limits, calls = limits_of(truth)
    verdicts: list[bool] = []

    def accept(call: Call) -> bool:
        good = right(rules, inputs[call.index], call, truth.expected[call.index])
        verdicts.append(good)
        return good  # one wrong call settles it: the rest would change nothing

    job = Job(
        code,
        rules.entry,
        inputs,
        scaled(limits, chosen.slowdown),
        [s * chosen.slowdown for s in calls],
    )
    ran = run(chosen.sandbox, job, accept)
    count = len(problem.data["base"])
    base = len(verdicts) >= count and all(verdicts[:count])
    plus = len(verdicts) == len(inputs) and all(verdicts)
    cause, detail = (None, None) if plus else _why(ran, inputs, truth, count)
    return Judged(base, plus, cause, detail, ran.seconds)


def _why(ran: Ran, inputs: list[Any], truth: Truth, base: int) -> tuple[str, str]:
    if ran.ended == "stopped":
        call = ran.calls[-1]
        where = _where(call.index, base)
        if call.error is not None:
            memory = call.error.startswith("MemoryError")
            return ("memory" if memory else "error"), f"{where}: {call.error}"
        wanted = truth.expected[call.index]
        told = _short(call.value or call.digest), _short(wanted.value or wanted.digest)
        given = _short(str(inputs[call.index]))
        return "wrong-answer", f"{where}, given {given}: {told[0]} instead of {told[1]}"
    if ran.ended == "error":
        missing = ran.detail.startswith("KeyError")
        return ("no-definition" if missing else "error"), ran.detail
    where = _where(len(ran.calls), base)
    return CAUSES.get(ran.ended, ran.ended), f"{where}: {ran.detail}"


def _where(index: int, base: int) -> str:
    return f"base test {index}" if index < base else f"plus test {index - base}"


def _short(text: str | None, most: int = 100) -> str:
    text = text or ""
    return text if len(text) <= most else f"{text[:most]}..."
