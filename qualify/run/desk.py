"""The evaluations of a run: which are still to be answered, asking them, scoring them."""

from __future__ import annotations

from collections.abc import Callable

from qualify.errors import UsageError
from qualify.evals.nouns import Completion
from qualify.evals.planned import Bench
from qualify.evals.standing import standing_answers
from qualify.evals.voice import Speaker, speaker
from qualify.plan import EvalPlan, LaunchPlan, Plan
from qualify.prompts.tokens import Tokenizer
from qualify.records.store import EVALS, Store, read_lines
from qualify.run.asking import ask_all
from qualify.run.events import Note, Watcher
from qualify.run.grading import grade_all
from qualify.run.launch import Attempt
from qualify.run.sending import work_of

# Parts of a plan's identity that decide an answer; thresholds, for example, do not.
DECIDING = ("engine", "image", "checkpoint", "tokenizer", "attach")


class Desk:
    """Answers are kept by side and evaluation, so that modes never mix."""

    def __init__(
        self, plan: Plan, store: Store, bench: Bench, tokenizer: Callable[[], Tokenizer | None]
    ) -> None:
        self.plan, self.store, self.bench = plan, store, bench
        self._load, self._loaded = tokenizer, False
        self._tokenizer: Tokenizer | None = None
        damage: list[str] = []
        self._answers = standing_answers(read_lines(Completion, store.folder / EVALS, damage))
        self.damage = tuple(damage)

    def pending(self, launch: LaunchPlan) -> list[EvalPlan]:
        """Evaluations of this launch that lack an answer. Whether the answers still belong to
        the same engine can be seen only when it runs: see `ask`."""
        side = launch.side.name
        return [item for item in launch.evals if not self._complete(side, item)]

    def _complete(self, side: str, item: EvalPlan) -> bool:
        mine = self._answers.get((side, item.id), {})
        ok = {p for p, c in mine.items() if c.record.ok}
        one = len({mine[p].basis for p in item.problems if p in mine}) == 1
        return one and ok.issuperset(item.problems)

    async def ask(self, attempt: Attempt, item: EvalPlan) -> None:
        identity = {k: v for k, v in self.plan.identity.items() if k in DECIDING}
        try:
            voice = self._speaker(item)
        except UsageError as error:
            attempt.watch(Note(f"{item.id} is not asked: {error.message} {error.remedy}"))
            return
        await ask_all(
            attempt,
            item,
            self.bench.kinds[item.id],
            self.bench.sets[item.id],
            voice,
            self._answers.setdefault((attempt.launch.side.name, item.id), {}),
            identity,
        )

    def _speaker(self, item: EvalPlan) -> Speaker:
        if not self._loaded:
            self._tokenizer, self._loaded = self._load(), True
        return speaker(item.style, self._tokenizer, item.thinking)

    def answered(self) -> int:
        return sum(c.record.ok for mine in self._answers.values() for c in mine.values())

    def grade(self, watch: Watcher, stopped: Callable[[], bool]) -> None:
        grade_all(self.store, self.plan, self.bench, watch, stopped)


def work_of_eval(item: EvalPlan) -> int:
    """Weighted tokens of everything that an evaluation sends, for the time that is left."""
    asked = len(item.problems) * item.sampling.output_tokens
    return work_of(item.prompt_tokens or 0, asked)
