"""Rank 0's runner: it does what a runner does, and has the other ranks do the same.

A ``contract.DecodeRunner`` like any other, so the scheduler and the server know nothing of ranks.
Questions (does it fit, what is missing) are answered here alone, as all ranks have the same pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from specdec import logs
from specdec.contract import CacheSize, DecodeRunner, RankParity, RunnerInfo, RunnerOptions
from specdec.errors import PoolExhausted, SpecdecError
from specdec.pages import Pages
from specdec.parallel.errors import RanksBroken, cause
from specdec.parallel.follower import report_of
from specdec.parallel.link import NEWS_S, Link
from specdec.parallel.parity import ParityCheck, tokens_line
from specdec.parallel.plans import (
    Admit,
    Decode,
    End,
    Flush,
    NewSequence,
    Plan,
    Prefill,
    Release,
    Report,
    Retract,
)
from specdec.request import Finish, Phase, SamplingParams, Sequence, StepResult
from specdec.runner import Runner

Result = TypeVar("Result")


class Leader:
    """``runner`` is rank 0's share; ``links`` lead to ranks 1, 2, …"""

    def __init__(
        self,
        runner: Runner,
        links: Seq[Link],
        timeout_s: float,
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._runner = runner
        self._on_closed = on_closed
        self._links = links
        self._timeout_s = timeout_s
        self._parity = ParityCheck(1 + len(links))
        self._numbers: dict[Sequence, int] = {}
        self._next = 0

    @classmethod
    def load(cls, model_dir: Path, options: RunnerOptions) -> DecodeRunner:
        """Start the ranks of ``options`` and load the model together."""
        from specdec.parallel.launch import load_runner

        return load_runner(model_dir, options)

    # -- questions ----------------------------------------------------------------------------

    @property
    def info(self) -> RunnerInfo:
        return self._runner.info

    @property
    def pool(self) -> Pages:
        return self._runner.pool

    @property
    def free_slots(self) -> int:
        return self._runner.free_slots

    @property
    def cache_size(self) -> CacheSize:
        """What rank 0's share of the prefix cache holds."""
        return self._runner.cache_size

    @property
    def rank_parity(self) -> RankParity:
        return self._parity.facts

    def can_admit(self, seq: Sequence) -> bool:
        return self._runner.can_admit(seq)

    def next_prefill_tokens(self, seq: Sequence) -> int:
        return self._runner.next_prefill_tokens(seq)

    def pages_short(self, seqs: Seq[Sequence]) -> int:
        return self._runner.pages_short(seqs)

    def new_sequence(
        self,
        request_id: str,
        prompt_ids: Seq[int],
        params: SamplingParams,
        cache_key: Hashable = None,
    ) -> Sequence:
        """The others hear of it when it is admitted."""
        seq = self._runner.new_sequence(request_id, prompt_ids, params, cache_key)
        seq.rank_token_parity = True
        return seq

    # -- what all ranks do --------------------------------------------------------------------

    def admit(self, seq: Sequence) -> None:
        if not self._runner.can_admit(seq):
            raise PoolExhausted("The request does not fit now.", "Wait for a running one to end.")
        new = None
        if seq not in self._numbers:
            self._numbers[seq] = self._next
            self._next += 1
            params = replace(seq.params, seed=seq.seed)
            new = NewSequence(seq.request_id, seq.prompt_ids, params, seq.cache_key)
        self._all(Admit(self._numbers[seq], new), lambda: self._runner.admit(seq))

    def retract(self, seq: Sequence) -> None:
        self._all(Retract(self._numbers[seq]), lambda: self._runner.retract(seq))

    def release(self, seq: Sequence, finish: Finish) -> None:
        """One that was never admitted, or has ended, is nothing to the others."""
        number = self._numbers.pop(seq, None)
        if number is None:
            self._runner.release(seq, finish)
            return
        self._all(Release(number, finish), lambda: self._runner.release(seq, finish))
        logs.logger.info(tokens_line(seq))

    def trim(self, seq: Sequence, tokens: int) -> None:
        """Counts of a finished sequence: rank 0's alone."""
        self._runner.trim(seq, tokens)

    def flush_cache(self) -> None:
        self._all(Flush(), self._runner.flush_cache)

    def check_integrity(self) -> None:
        """The others check theirs at every flush."""
        self._runner.check_integrity()

    def prefill_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        return self._step(Prefill(self._named(seqs)), seqs, self._runner.prefill_step)

    def decode_step(self, seqs: Seq[Sequence]) -> list[StepResult]:
        if not seqs:
            return []
        if self._runner.pages_short(seqs):
            raise PoolExhausted(
                "The KV pool has no page for the next row.", "Retract a sequence first."
            )
        return self._step(Decode(self._named(seqs)), seqs, self._runner.decode_step)

    def _step(
        self,
        plan: Plan,
        seqs: Seq[Sequence],
        step: Callable[[Seq[Sequence]], list[StepResult]],
    ) -> list[StepResult]:
        if not seqs:
            return []
        results = self._all(plan, lambda: step(seqs))
        mine = report_of(self._runner, results)
        for link in self._links:
            theirs = self._received(link)
            self._parity.compare(seqs, mine, link.rank, theirs)
        for seq in seqs:
            if seq.phase is Phase.FINISHED:
                del self._numbers[seq]
                logs.logger.info(tokens_line(seq))
        return results

    def _received(self, link: Link) -> Report:
        try:
            report = link.receive(self._timeout_s)
        except RanksBroken as error:
            raise explained(self._links, error) from None
        assert isinstance(report, Report)
        return report

    def _named(self, seqs: Seq[Sequence]) -> tuple[int, ...]:
        return tuple(self._numbers[seq] for seq in seqs)

    def _all(self, plan: Plan, work: Callable[[], Result]) -> Result:
        """Tell the others, then do it here; a broken collective is explained by who is gone."""
        for link in self._links:
            link.send(plan)
        try:
            return work()
        except SpecdecError:
            raise
        except RuntimeError as error:
            raise explained(self._links, error) from error

    # -- ends ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End the other ranks."""
        for link in self._links:
            with suppress(RanksBroken):
                link.send(End())
        for link in self._links:
            link.leave()
        self._on_closed()


def explained(links: Seq[Link], error: Exception) -> Exception:
    """RanksBroken that names the rank at fault, if one has ended; else the error itself."""
    deadline = time.monotonic() + NEWS_S
    while time.monotonic() < deadline and not any(link.ended for link in links):
        time.sleep(0.01)
    return cause([link.ended for link in links if link.ended], error)
