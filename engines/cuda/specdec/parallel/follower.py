"""A rank other than 0: it does what the plans say, on the same runner as rank 0."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq

from specdec import logs
from specdec.contract import DecodeRunner
from specdec.parallel.parity import tokens_line
from specdec.parallel.plans import Admit, Decode, Flush, Plan, Prefill, Release, Report, Retract
from specdec.request import Phase, Sequence, StepResult


class Follower:
    """Mirrors rank 0's calls on ``runner``. Sequences go by rank 0's numbers."""

    def __init__(self, runner: DecodeRunner) -> None:
        self._runner = runner
        self._seqs: dict[int, Sequence] = {}

    @property
    def sequences(self) -> int:
        """How many have not ended."""
        return len(self._seqs)

    def obey(self, plan: Plan) -> Report | None:
        """Carry out one plan; a step's report is for rank 0."""
        match plan:
            case Admit(number, new):
                if new is not None:
                    self._seqs[number] = self._runner.new_sequence(
                        new.request_id, new.prompt_ids, new.params, new.cache_key
                    )
                self._runner.admit(self._seqs[number])
            case Prefill(numbers):
                return self._step(self._runner.prefill_step, numbers)
            case Decode(numbers):
                return self._step(self._runner.decode_step, numbers)
            case Retract(number):
                self._runner.retract(self._seqs[number])
            case Release(number, finish):
                seq = self._seqs.pop(number)
                self._runner.release(seq, finish)
                logs.logger.info(tokens_line(seq))
            case Flush():
                self._runner.flush_cache()
                self._runner.check_integrity()
        return None

    def _step(
        self, step: Callable[[Seq[Sequence]], list[StepResult]], numbers: tuple[int, ...]
    ) -> Report:
        results = step([self._seqs[number] for number in numbers])
        for number, result in zip(numbers, results, strict=True):
            if result.sequence.phase is Phase.FINISHED:
                logs.logger.info(tokens_line(self._seqs.pop(number)))
        return report_of(self._runner, results)


def report_of(runner: DecodeRunner, results: Seq[StepResult]) -> Report:
    """What a rank says of a step."""
    tokens = tuple(result.tokens for result in results)
    return Report(tokens, runner.pool.free_tokens, runner.free_slots)
