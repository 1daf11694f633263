"""Drive a runner to the end of some requests, and scripted drafts for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

from specdec.draft_facts import DraftFacts
from specdec.drafter import Drafter, Drafts
from specdec.request import Phase, SamplingParams, Sequence, StepResult
from specdec.rows import Rows
from specdec.runner import Runner


def greedy(max_new_tokens: int, **changes: Any) -> SamplingParams:
    settings: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, **changes}
    return SamplingParams(max_new_tokens=max_new_tokens, **settings)


def start(runner: Runner, prompts: Seq[Seq[int]], params: SamplingParams) -> list[Sequence]:
    """Make and admit a sequence for each prompt."""
    seqs = [runner.new_sequence(str(i), prompt, params) for i, prompt in enumerate(prompts)]
    for seq in seqs:
        runner.admit(seq)
    return seqs


def step(runner: Runner, seqs: Seq[Sequence]) -> list[StepResult]:
    """One prefill chunk for the first that needs one, then a decode step for the others."""
    waiting = [seq for seq in seqs if seq.phase is Phase.PREFILL][:1]
    results = runner.prefill_step(waiting)
    results += runner.decode_step([seq for seq in seqs if seq.phase is Phase.DECODE])
    runner.pool.check_integrity()
    return results


def finish(
    runner: Runner, seqs: Seq[Sequence], after: Callable[[], None] = lambda: None
) -> list[Sequence]:
    """Step until every sequence has ended, calling ``after`` each time; returns them."""
    while any(seq.phase is not Phase.FINISHED for seq in seqs):
        step(runner, seqs)
        after()
    assert runner.pool.free_tokens == runner.pool.total_tokens
    assert runner.free_slots == runner.info.max_running_requests
    for seq in seqs:
        assert seq.counters.output_tokens() == len(seq.output_ids)
    return list(seqs)


def generate(
    runner: Runner, prompts: Seq[Seq[int]], params: SamplingParams, batch: int
) -> list[Sequence]:
    """Run all prompts, ``batch`` at a time."""
    done: list[Sequence] = []
    for first in range(0, len(prompts), batch):
        done += finish(runner, start(runner, prompts[first : first + batch], params))
    return done


def target_rows(runner: Runner, seq: Sequence, tokens: Seq[int]) -> Rows:
    """The target's rows of ``tokens``, from the first position on, in one pass."""
    core = runner._core
    return core.forward([core.span(seq, list(tokens))])


def random_prompts(count: int, lengths: Seq[int], vocabulary: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(vocabulary) for _ in range(rng.choice(lengths))] for _ in range(count)]


class ScriptedDrafter(Drafter):
    """Proposes the known continuation up to a scripted number of tokens, and wrong ones after it.

    ``continuations``: for each sequence's request id all its output ids. ``script()`` gives, for
    each draft call of a sequence, how many of the proposed tokens shall be right.
    """

    def __init__(self, continuations: dict[str, list[int]], script: Callable[[], int]) -> None:
        self._continuations = continuations
        self._script = script
        self.rights: list[tuple[int, int]] = []  # (right, proposed)

    @property
    def facts(self) -> DraftFacts:
        return DraftFacts("Scripted", 7)

    def propose(self, seqs: Seq[Sequence], widths: Seq[int]) -> list[Drafts]:
        return [self._one(seq, width) for seq, width in zip(seqs, widths, strict=True)]

    def _one(self, seq: Sequence, width: int) -> Drafts:
        at = len(seq.output_ids)
        true = self._continuations[seq.request_id][at : at + width]
        right = min(self._script(), width)
        self.rights.append((right, width))
        return Drafts([*true[:right], *((token + 1) % 256 for token in true[right:])])

    def remember(self, seq: Sequence, rows: Any) -> None:
        pass

    def forget(self, seq: Sequence) -> None:
        pass
