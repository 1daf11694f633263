"""One request at a time on a runner, prefill and decode timed apart.

For the command line: no scheduler, no thread, no detokeniser. Whatever requests leave in the
prefix cache stays with the runner, so a second request can go on from the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from specdec.contract import DecodeRunner
from specdec.request import Phase, SamplingParams, Sequence


@dataclass(frozen=True)
class Answer:
    """A finished request and its seconds. The first output token is prefill's, as is the drafter's
    priming; ``decode_s`` covers the others. ``wall_s`` has what lies between the steps too."""

    sequence: Sequence
    wall_s: float
    prefill_s: float
    decode_s: float

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens over prefill's seconds, those that the prefix cache gave included."""
        return len(self.sequence.prompt_ids) / self.prefill_s

    @property
    def computed_tokens_per_s(self) -> float:
        """Prompt tokens that were computed over prefill's seconds."""
        return self.computed_tokens / self.prefill_s

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that the prefix cache did not give."""
        return len(self.sequence.prompt_ids) - self.sequence.cached_tokens

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Output tokens after the first over decode's seconds; None where there is no second."""
        after_first = len(self.sequence.output_ids) - 1
        return after_first / self.decode_s if after_first > 0 else None


def answer(
    runner: DecodeRunner,
    request_id: str,
    prompt_ids: Seq[int],
    params: SamplingParams,
    clock: Callable[[], float] = time.perf_counter,
) -> Answer:
    """Run one request to its end. Raises RequestRefused before anything is computed."""
    begin = clock()
    seq = runner.new_sequence(request_id, prompt_ids, params)
    runner.admit(seq)
    while seq.phase is Phase.PREFILL:
        runner.prefill_step([seq])
    first = clock()
    while seq.phase is Phase.DECODE:
        runner.decode_step([seq])
    end = clock()
    return Answer(seq, end - begin, first - begin, end - first)
