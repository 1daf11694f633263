"""Needles: independent codes in a text of an exact size, asked for at its end.

Five needles claim that a context of this size is held and can be searched; nothing more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from qualify.errors import CellError, UsageError
from qualify.evals.fences import visible
from qualify.evals.needle_prompts import first_prompt, later_prompt
from qualify.evals.needle_words import ask_one, codes, question, read_answer
from qualify.evals.nouns import Completion, Problem, ProblemSet, Score, Voice
from qualify.evals.problems import problem_set
from qualify.evals.voice import Speaker
from qualify.plan import EvalPlan
from qualify.prompts.draw import draw
from qualify.prompts.needles import least_tokens
from qualify.prompts.prompt import Prompt
from qualify.prompts.sources import open_source

SCORER = 1  # raise it when reading of answers changes
MEASURE = "codes"
FRESH = "fresh"
SINGLE_DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
FRESH_COUNT = 5


@dataclass
class NeedlesKind:
    """See `nouns.Kind`. Prompts of the session at hand are kept: later turns build on them."""

    name: str = "needles"
    _session: str | None = None
    _built: dict[str, Prompt] = field(default_factory=dict)

    def measures(self) -> tuple[str, ...]:
        return (MEASURE,)

    def problems(self, options: dict[str, Any]) -> ProblemSet:
        corpus = open_source(options["source"])
        given = options["tokens"]
        lengths = [given] if isinstance(given, int) else list(given)
        if not lengths or min(lengths) < 1 or len(set(lengths)) < len(lengths):
            raise UsageError("needles: tokens must be sizes that differ.", "Write tokens: 8192.")
        _room(min(lengths), options["count"], "tokens")
        if options["fresh_tokens"]:
            _room(options["fresh_tokens"], FRESH_COUNT, "fresh_tokens")
        made = [
            problem
            for tokens in lengths
            for seed in range(options["seed"], options["seed"] + options["seeds"])
            for depths in _shapes(options, tokens, seed)
            for problem in _session(options, corpus.sha256, tokens, seed, depths)
        ]
        if options["fresh_tokens"]:
            short = {**options, "count": FRESH_COUNT, "depths": None, "turns": 1}
            tokens = options["fresh_tokens"]
            (depths,) = _shapes(short, tokens, options["seed"], FRESH)
            found = _session(short, corpus.sha256, tokens, options["seed"], depths, FRESH)
            made += found
        return problem_set(self.name, made, corpus.source)

    def cache(self, options: dict[str, Any]) -> str:
        return "cold"

    def preflight(self) -> None:
        return

    def stop(self, style: str) -> tuple[str, ...]:
        return ("\n",) if style == "base" else ()

    def prompt(
        self, problem: Problem, plan: EvalPlan, voice: Voice, before: Sequence[Completion]
    ) -> Prompt:
        """Raises CellError where the size cannot be reached, or without a tokenizer."""
        if not isinstance(voice, Speaker) or voice.tokenizer is None:
            raise CellError(
                "A prompt of an exact size needs the model's tokenizer.",
                "Give --tokenizer PATH, or tokenizer: in the engine's definition.",
            )
        if problem.session != self._session:
            self._session, self._built = problem.session, {}
        found = self._built.get(problem.id)
        if found is None:
            index = plan.problems.index(problem.id)
            if problem.data["turn"] == 0:
                found = first_prompt(problem, f"{plan.id}/{problem.id}", index, voice)
            else:
                previous = self._built[f"{problem.session}/t{problem.data['turn'] - 1}"]
                answer = before[problem.data["turn"] - 1]
                found = later_prompt(problem, f"{plan.id}/{problem.id}", voice, previous, answer)
            self._built[problem.id] = found
        return found

    def scorer(self, plan: EvalPlan) -> str:
        told = [SCORER, plan.problems_sha256]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def grade(
        self, plan: EvalPlan, work: Sequence[tuple[Problem, Completion]]
    ) -> Iterator[tuple[Completion, list[Score]]]:
        for problem, completion in work:
            yield completion, [_score(plan, problem, completion, self.scorer(plan))]


def _room(tokens: int, count: int, key: str) -> None:
    """Refuse what holds no prompt with any tokenizer; what the codes take is counted later."""
    if tokens < (least := least_tokens(count)):
        raise UsageError(
            f"needles: {key} {tokens:,} has no room for {count} codes and their text.",
            f"Write {key} well above {least:,}, or a smaller count.",
        )


def _shapes(
    options: dict[str, Any], tokens: int, seed: int, role: str = ""
) -> list[tuple[float, ...]]:
    """The depths of each prompt: one set of them, or with a single code each depth alone."""
    count, given = options["count"], options["depths"]
    if count == 1:
        return [(d,) for d in (given or SINGLE_DEPTHS)]
    if given is None:
        return [_drawn(count, (tokens, seed, role))]
    if len(given) != count:
        raise UsageError(
            f"needles: {count} codes have {len(given)} depths.",
            "Give one depth for each code, or leave depths out.",
        )
    return [tuple(sorted(given))]


def _drawn(count: int, key: tuple[str | int, ...]) -> tuple[float, ...]:
    """Near the start, through the middle, near the end; a little elsewhere for each seed."""
    spread = 1.0 / (count - 1)
    found = []
    for place in range(count):
        chance = draw("needles", "depth", *key, place) / 2**64
        middle = 0.04 + 0.92 * place * spread
        found.append(round(middle + (chance - 0.5) * min(0.04, 0.5 * spread), 4))
    return tuple(found)


def _session(
    options: dict[str, Any],
    source_sha256: str,
    tokens: int,
    seed: int,
    depths: tuple[float, ...],
    role: str = "",
) -> list[Problem]:
    name = f"{role + '/' if role else ''}{tokens}/s{seed}"
    if len(depths) == 1:
        name += f"@{depths[0]:g}"
    key: tuple[str | int, ...] = (tokens, seed, role, *(f"{d:g}" for d in depths))
    hidden = codes(len(depths), key)
    data = {
        "tokens": tokens,
        "role": role,
        "key": list(key),
        "codes": list(hidden),
        "depths": list(depths),
        "source": options["source"],
        "source_sha256": source_sha256,
        "repeat": options["repeat"],
    }
    asked = question(len(depths))
    found = [Problem(f"{name}/t0", asked, {**data, "turn": 0, "expected": list(hidden)}, name)]
    for turn in range(1, options["turns"]):
        # Last code first: what was asked for just before is never the next answer.
        which = (len(hidden) - turn) % len(hidden)
        more = {**data, "turn": turn, "expected": [hidden[which]]}
        found.append(Problem(f"{name}/t{turn}", ask_one(which), more, name))
    return found


def _score(plan: EvalPlan, problem: Problem, completion: Completion, scorer: str) -> Score:
    expected = tuple(problem.data["expected"])
    seen = visible(completion.answer)
    reading = read_answer(seen.text, expected)
    placed = {n["code"]: n for n in completion.evidence.get("prompt", {}).get("needles", ())}
    asked = dict(zip(problem.data["codes"], problem.data["depths"], strict=True))
    outcome: Literal["pass", "fail"] = "pass" if reading.cause is None else "fail"
    told = None
    if reading.cause is not None:
        told = f"found {len(reading.found)} of {len(expected)}"
        told += f", also gave {', '.join(reading.spurious[:5])}" if reading.spurious else ""
    return Score(
        eval=plan.id,
        side=completion.side,
        problem=problem.id,
        measure=MEASURE,
        key=completion.key,
        output_sha256=completion.record.output_sha256 or "",
        scorer=scorer,
        outcome=outcome,
        cause=reading.cause,
        detail=told,
        values={
            "tokens": problem.data["tokens"],
            "role": problem.data["role"],
            "turn": problem.data["turn"],
            "needles": [
                {
                    "code": code,
                    "asked_depth": asked[code],
                    "depth": placed.get(code, {}).get("depth"),
                    "position": placed.get(code, {}).get("position"),
                    "found": code in reading.found,
                }
                for code in expected
            ],
            "spurious": list(reading.spurious),
            "notes": list(seen.notes),
        },
    )
