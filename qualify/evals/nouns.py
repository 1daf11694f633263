"""The nouns of evaluations: what is asked, what came back, how it was scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from qualify.plan import EvalPlan
from qualify.prompts.prompt import Prompt
from qualify.records.schema import SCHEMA, Record


@dataclass(frozen=True)
class Problem:
    """One problem. `data` is the kind's own (tests, answer, needles) and is never sent.

    Problems of one session follow each other, and each sees its session's completions; a
    cold evaluation clears the cache before a session, not inside it.
    """

    id: str
    text: str  # what is asked, before any instruction or chat template
    data: dict[str, Any] = field(default_factory=dict)
    session: str | None = None


@dataclass(frozen=True)
class ProblemSet:
    """Problems in the order in which they are asked; sha256 covers ids, texts and data."""

    name: str
    problems: tuple[Problem, ...]
    sha256: str
    source: str  # for people: a path, or the package that they came from
    subset: str | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(p.id for p in self.problems)


@dataclass(frozen=True)
class Completion:
    """One line of evals.jsonl: one problem, asked once in one mode.

    `basis` is a sha256 over what all answers of one evaluation in one mode share (side,
    engine, image, checkpoint, sampling), `key` over that and the prompt. An answer is used
    again only under an equal key, and an evaluation whose answers have two bases is none.
    `record` is the request as any other, with record.cell = the evaluation's id.
    """

    eval: str
    problem: str
    basis: str
    key: str
    record: Record
    evidence: dict[str, Any] = field(default_factory=dict)  # counters, cold proof
    schema: int = SCHEMA

    @property
    def side(self) -> str:
        return self.record.side

    @property
    def answer(self) -> str:
        """The visible answer; thinking text is kept apart in record.reasoning_text."""
        return self.record.output_text or ""


@dataclass(frozen=True)
class Score:
    """One line of scores.jsonl: one completion by one measure.

    `cause` is a stable word for a failure (wrong-answer, timeout, memory, no-code, ...).
    `scorer` is a hash of what judged it; a score is used again only where key and scorer are
    equal. values holds figures of the kind, JSON-ready.
    """

    eval: str
    side: str
    problem: str
    measure: str
    key: str  # the completion's
    output_sha256: str  # the answer's; "" for an empty one
    scorer: str
    outcome: Literal["pass", "fail"]
    cause: str | None = None
    detail: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA


class Voice(Protocol):
    """How a text becomes a prompt for the model at hand; see `evals.voice`."""

    @property
    def style(self) -> str:
        """chat | base | server-chat: never auto."""
        ...

    def prompt(self, text: str, *, id: str, index: int) -> Prompt: ...


class Kind(Protocol):
    """One kind of evaluation. Everything that differs between evaluations is here."""

    name: str

    def measures(self) -> tuple[str, ...]: ...

    def problems(self, options: dict[str, Any]) -> ProblemSet:
        """The whole set. Raises UsageError with a remedy where it cannot be had."""
        ...

    def cache(self, options: dict[str, Any]) -> str:
        """any, or cold: cleared before each session, one request at a time."""
        ...

    def preflight(self) -> None:
        """Raises UsageError where answers could not be scored here; before anything starts."""
        ...

    def stop(self, style: str) -> tuple[str, ...]:
        """Texts that end an answer; none for chat, where they would cut a code block."""
        ...

    def prompt(
        self, problem: Problem, plan: EvalPlan, voice: Voice, before: Sequence[Completion]
    ) -> Prompt:
        """`before`: the completions of the problem's session so far."""
        ...

    def scorer(self, plan: EvalPlan) -> str:
        """A hash of everything that decides a score besides the answer."""
        ...

    def grade(
        self, plan: EvalPlan, work: Sequence[tuple[Problem, Completion]]
    ) -> Iterator[tuple[Completion, list[Score]]]:
        """The scores of each completion, one for each measure, as they become known."""
        ...
