"""Admission, continuous batching, retraction and cancelling: who runs in the next step.

No thread, no clock of its own, no I/O: `step` is called by the engine's thread, and what it has to
tell goes to the `emit` function as it happens.

- Requests wait in order of arrival and are admitted in that order, none past another.
- A step is one prefill batch (a chunk for the oldest unfinished prompts, at most one chunk's worth
  of tokens in all) followed by one decode step of everything that decodes.
- When the pool cannot hold the next decode step, the youngest request goes back to the queue. It
  is admitted again only when its whole budget and everyone else's fit, or when it would run alone,
  so that the same request is not sent back over and over.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from specdec import logs
from specdec.contract import DecodeRunner
from specdec.detokenize import Detokenizer
from specdec.errors import QueueFull, RequestRefused
from specdec.job import Delta, Job, JobSpec
from specdec.logs import Load
from specdec.reporter import Reporter
from specdec.request import Finish, Phase, StepResult
from specdec.tokenizer import Tokenizer
from specdec.totals import Totals

Emit = Callable[[list[tuple[str, Delta]]], None]


@dataclass
class Scheduler:
    """Runs the requests of one runner. `emit` gets (rid, delta) pairs, a list for each step."""

    runner: DecodeRunner
    tokenizer: Tokenizer
    emit: Emit
    reporter: Reporter
    clock: Callable[[], float] = time.monotonic
    max_queued: int | None = None
    totals: Totals = field(default_factory=Totals)
    _waiting: list[Job] = field(default_factory=list)
    _running: list[Job] = field(default_factory=list)
    _arrivals: int = 0

    # -- what clients ask -------------------------------------------------------------------

    def add(self, specs: list[JobSpec]) -> None:
        """Queue requests, all or none. Raises RequestRefused with the reason for the first."""
        live = {job.spec.rid for job in (*self._waiting, *self._running)}
        jobs = []
        for spec in specs:
            if spec.rid in live:
                raise RequestRefused(
                    f"A request with rid '{spec.rid}' is still running.", "Use another rid."
                )
            live.add(spec.rid)
            sequence = self.runner.new_sequence(
                spec.rid, spec.prompt_ids, spec.params, spec.cache_key
            )
            detokenizer = Detokenizer(
                self.tokenizer, spec.stop, spec.skip_special_tokens, spec.keep_stop
            )
            self._arrivals += 1
            jobs.append(Job(spec, sequence, detokenizer, self._arrivals))
        if self.max_queued is not None and len(self._waiting) + len(jobs) > self.max_queued:
            raise QueueFull(
                f"The queue holds {len(self._waiting)} requests, and {self.max_queued} is its "
                "limit.",
                "Try again later.",
            )
        self._waiting.extend(jobs)
        self.totals.requests += len(jobs)

    def abort(self, matches: Callable[[str], bool], message: str) -> int:
        """End every request whose rid matches; give back what they hold. Returns their number."""
        gone = [job for job in (*self._waiting, *self._running) if matches(job.spec.rid)]
        self.totals.aborted_requests += len(gone)
        self._end(gone, message)
        return len(gone)

    def fail_all(self, message: str) -> None:
        """Report to every request that the engine broke. Touches the runner no more."""
        jobs, self._waiting, self._running = [*self._waiting, *self._running], [], []
        finish = Finish("abort", message=message)
        now = self.clock()
        self._publish([(job, job.delta(now, text="", finish=finish, failed=True)) for job in jobs])

    def flush(self) -> bool:
        """Forget what requests left behind. False, and nothing done, while any is unfinished."""
        if not self.idle:
            logs.logger.warning(
                logs.flush_refused_line(queued=len(self._waiting), running=len(self._running))
            )
            return False
        self.runner.flush_cache()
        self.runner.check_integrity()
        self.reporter.on_flush(self.totals)
        logs.logger.info(logs.FLUSHED_LINE)
        return True

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing waits."""
        return not self._waiting and not self._running

    @property
    def load(self) -> Load:
        """How full everything is now."""
        pool, slots = self.runner.pool, self.runner.info.max_running_requests
        return Load(
            used_tokens=pool.used_tokens,
            evictable_tokens=pool.evictable_tokens,
            total_tokens=pool.total_tokens,
            used_slots=slots - self.runner.free_slots,
            total_slots=slots,
            running=len(self._running),
            queued=len(self._waiting),
        )

    def tokens_in(self, phase: Phase) -> int:
        """Tokens, prompt and output, of the running requests in a phase."""
        running = tuple(self._running)
        return sum(job.sequence.total_tokens for job in running if job.sequence.phase is phase)

    # -- one step ---------------------------------------------------------------------------

    def step(self) -> None:
        """Admit what fits, compute one prefill batch, then one decode step."""
        self._admit()
        self._prefill()
        self._decode()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0]):
            job = self._waiting.pop(0)
            self.runner.admit(job.sequence)
            if job.admitted_s is None:
                job.admitted_s = self.clock()
                self.totals.prompt_tokens += len(job.sequence.prompt_ids)
                self.totals.cached_tokens += job.sequence.cached_tokens
                self.reporter.on_admitted(job, job.admitted_s)
            bisect.insort(self._running, job, key=lambda each: each.order)

    def _fits(self, job: Job) -> bool:
        if not self.runner.can_admit(job.sequence):
            return False
        if job.sequence.counters.retractions == 0 or not self._running:
            return True
        page = self.runner.pool.page_size
        wanted = sum(
            -(-(len(each.sequence.prompt_ids) + each.sequence.params.max_new_tokens) // page) * page
            for each in (job, *self._running)
        )
        return wanted <= self.runner.pool.total_tokens

    def _prefill(self) -> None:
        batch: list[Job] = []
        budget = self.runner.info.prefill_chunk_tokens
        for job in self._running:
            if job.sequence.phase is not Phase.PREFILL:
                continue
            tokens = self.runner.next_prefill_tokens(job.sequence)
            if batch and tokens > budget:
                break
            batch.append(job)
            budget -= tokens
        if not batch:
            return
        decoding = len(self._decoding())
        began = self.clock()
        results = self.runner.prefill_step([job.sequence for job in batch])
        seconds = self.clock() - began
        self._settle(batch, results)
        pending = sum(
            job.sequence.total_tokens - job.sequence.computed
            for job in (*self._running, *self._waiting)
            if job.sequence.phase in (Phase.PREFILL, Phase.WAITING)
        )
        load = replace(self.load, running=decoding)
        self.reporter.on_prefill(load, batch, results, pending, seconds)

    def _decode(self) -> None:
        self._make_room()
        batch = self._decoding()
        if not batch:
            return
        began = self.clock()
        results = self.runner.decode_step([job.sequence for job in batch])
        seconds = self.clock() - began
        self._settle(batch, results)
        self.reporter.on_decode(self.load, self.totals, seconds)

    def _decoding(self) -> list[Job]:
        return [job for job in self._running if job.sequence.phase is Phase.DECODE]

    def _make_room(self) -> None:
        retracted: list[Job] = []
        freed = 0
        while self.runner.pages_short([job.sequence for job in self._decoding()]) > 0:
            job = self._running.pop()
            before = self.runner.pool.used_tokens
            self.runner.retract(job.sequence)
            freed += before - self.runner.pool.used_tokens
            self._waiting.insert(0, job)
            retracted.append(job)
            self.totals.retracted_input_tokens += len(job.sequence.prompt_ids)
            self.totals.retracted_output_tokens += len(job.sequence.output_ids)
        if retracted:
            self.totals.retractions += len(retracted)
            self.reporter.on_retracted(len(retracted), freed)

    def _settle(self, batch: list[Job], results: list[StepResult]) -> None:
        """Read a step's tokens, end what ended, and tell the clients."""
        now = self.clock()
        self.totals.add_step(results)
        news = []
        for job, result in zip(batch, results, strict=True):
            reading = job.read(result.tokens, result.finish)
            finish = reading.finish
            excess = len(result.tokens) - reading.kept
            if finish is not None:
                self.runner.release(job.sequence, finish)
                if excess:
                    self.runner.trim(job.sequence, excess)
                    self.totals.trimmed_tokens += excess
            if not result.tokens and finish is None:
                continue
            self.totals.output_tokens += reading.kept
            if reading.kept:
                self.reporter.on_tokens(job, reading.kept, now)
                job.first_token_s = job.first_token_s or now
                job.last_token_s = now
            delta = job.delta(
                now,
                text=reading.text,
                token_ids=result.tokens[: reading.kept],
                logprobs=None if result.logprobs is None else result.logprobs[: reading.kept],
                finish=finish,
                failed=finish is not None and finish.kind == "abort",
            )
            news.append((job, delta))
        self._running = [job for job in self._running if job.sequence.phase is not Phase.FINISHED]
        self._publish(news)

    # -- ends -------------------------------------------------------------------------------

    def _end(self, jobs: Iterable[Job], message: str) -> None:
        finish = Finish("abort", message=message)
        now, news = self.clock(), []
        for job in jobs:
            self.runner.release(job.sequence, finish)
            (self._running if job in self._running else self._waiting).remove(job)
            text = job.detokenizer.finish()
            news.append((job, job.delta(now, text=text, finish=finish)))
        self._publish(news)

    def _publish(self, news: list[tuple[Job, Delta]]) -> None:
        for job, delta in news:
            if delta.finish is not None:
                self.reporter.on_finished(job, delta)
        if news:
            self.emit([(job.spec.rid, delta) for job, delta in news])
