"""What the scheduler's work looks like from outside: log lines, interval rates, histograms."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from specdec import logs
from specdec.job import Delta, Job
from specdec.logs import Load
from specdec.metrics import Histograms
from specdec.request import StepResult
from specdec.totals import Totals


@dataclass
class Reporter:
    """Writes the batch lines and keeps the figures that belong to an interval.

    A decode line is written every `decode_log_interval` decode steps and closes an interval; rates
    over the interval leave out the time in which nothing ran. `graph` says whether steps run as
    captured graphs.
    """

    decode_log_interval: int = 40
    graph: bool = False
    histograms: Histograms | None = None
    gen_throughput: float | None = None
    interval_accept_length: float | None = None
    interval_accept_rate: float | None = None
    last_retracted: int = 0
    cache_hit_rate: float | None = None
    _steps: int = 0
    _busy_s: float = 0.0
    _mark: Totals = field(default_factory=Totals)
    _flush_mark: Totals = field(default_factory=Totals)

    def on_admitted(self, job: Job, now_s: float) -> None:
        """A request left the queue for the first time."""
        if self.histograms is not None and job.spec.measured:
            self.histograms.queue_time.observe(now_s - job.spec.received_s)

    def on_prefill(
        self,
        load: Load,
        batch: Seq[Job],
        results: Seq[StepResult],
        pending: int,
        seconds: float,
    ) -> None:
        """One prefill batch took `seconds`; `pending` prompt tokens are still to compute."""
        self._busy_s += seconds
        tokens = sum(result.prefilled_tokens for result in results)
        cached = sum(result.reused_tokens for result in results)
        self.cache_hit_rate = cached / (cached + tokens)
        logs.logger.info(
            logs.prefill_line(
                load=load,
                new_sequences=len(batch),
                new_tokens=tokens,
                cached_tokens=cached,
                pending_tokens=pending,
                graph=self.graph,
                tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
            )
        )

    def on_decode(self, load: Load, totals: Totals, seconds: float) -> None:
        """One decode step took `seconds`."""
        self._busy_s += seconds
        self._steps += 1
        if self._steps % self.decode_log_interval:
            return
        interval = totals.since(self._mark)
        self.gen_throughput = interval.output_tokens / self._busy_s if self._busy_s > 0 else None
        self.interval_accept_length = interval.accept_length
        self.interval_accept_rate = interval.accept_rate
        self._mark, self._busy_s = totals.copy(), 0.0
        logs.logger.info(
            logs.decode_line(
                load=load,
                accept_length=interval.accept_length,
                accept_rate=interval.accept_rate,
                graph=self.graph,
                tokens_per_s=self.gen_throughput or 0.0,
            )
        )

    def on_retracted(self, retracted: int, freed_tokens: int) -> None:
        """Requests went back to the queue because the pool was full."""
        self.last_retracted = retracted
        logs.logger.warning(logs.retract_line(retracted=retracted, freed_tokens=freed_tokens))

    def on_tokens(self, job: Job, tokens: int, now_s: float) -> None:
        """A request got `tokens` new visible tokens; its times of last tokens are still the old."""
        if self.histograms is None or not job.spec.measured or tokens == 0:
            return
        if job.last_token_s is None:
            self.histograms.time_to_first_token.observe(now_s - job.spec.received_s)
        else:
            gap_s = (now_s - job.last_token_s) / tokens
            for _ in range(tokens):
                self.histograms.inter_token_latency.observe(gap_s)

    def on_finished(self, job: Job, delta: Delta) -> None:
        """A request ended, in whatever way."""
        if self.histograms is None or not job.spec.measured or delta.timing is None:
            return
        latency_s = delta.timing.finished_s - delta.timing.received_s
        self.histograms.e2e_request_latency.observe(latency_s)
        self.histograms.prompt_tokens.observe(delta.prompt_tokens)
        self.histograms.uncached_prompt_tokens.observe(delta.prompt_tokens - delta.cached_tokens)
        self.histograms.generation_tokens.observe(delta.completion_tokens)

    def on_flush(self, totals: Totals) -> None:
        """The speculative averages start anew, as they do in SGLang."""
        self._flush_mark = totals.copy()

    def since_flush(self, totals: Totals) -> Totals:
        """Counts since the start or the last flush."""
        return totals.since(self._flush_mark)
