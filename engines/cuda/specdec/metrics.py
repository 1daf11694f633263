"""Prometheus series under SGLang's names, from a registry of their own.

Gauges and counters are read from the scheduler when they are scraped and cost nothing between
scrapes; only the histograms are fed as requests pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from specdec.contract import CacheSize, RankParity
from specdec.logs import Load
from specdec.totals import Totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LATENCY_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)


@dataclass(frozen=True)
class Snapshot:
    """What one scrape sees. Rates are those of the last closed interval, None before the first."""

    load: Load
    totals: Totals
    gen_throughput: float | None
    accept_length: float | None
    accept_rate: float | None
    last_retracted: int
    decode_tokens: int
    cache: CacheSize = field(default_factory=CacheSize)
    cache_hit_rate: float | None = None
    parity: RankParity | None = None


@dataclass(frozen=True)
class Constants:
    """Figures that do not change while the server runs."""

    max_total_tokens: int
    page_size: int
    context_length: int
    weight_bytes: int
    kv_cache_bytes: int
    draft_steps: int | None
    draft_class: str | None = None


class Histograms:
    """The distributions that the scheduler feeds. Seconds and tokens."""

    def __init__(self, registry: CollectorRegistry, labels: dict[str, str]) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            family = Histogram(
                f"sglang:{name}", text, list(labels), buckets=buckets, registry=registry
            )
            return family.labels(**labels)

        self.time_to_first_token = histogram(
            "time_to_first_token_seconds", "Receipt to first token.", _LATENCY_S
        )
        self.inter_token_latency = histogram(
            "inter_token_latency_seconds",
            "Time per token between two steps: a step's gap shared by its tokens.",
            _LATENCY_S,
        )
        self.e2e_request_latency = histogram(
            "e2e_request_latency_seconds", "Receipt to end.", _LATENCY_S
        )
        self.queue_time = histogram("queue_time_seconds", "Receipt to first admission.", _LATENCY_S)
        self.prompt_tokens = histogram(
            "prompt_tokens_histogram", "Prompt tokens of a request.", _TOKENS
        )
        self.uncached_prompt_tokens = histogram(
            "uncached_prompt_tokens_histogram", "Prompt tokens that were computed.", _TOKENS
        )
        self.generation_tokens = histogram(
            "generation_tokens_histogram", "Output tokens of a request.", _TOKENS
        )


class Metrics:
    """The registry behind `/metrics`."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self.labels = {"model_name": model_name, "engine_type": "unified", "tp_rank": "0"}
        self.histograms = Histograms(self.registry, self.labels)

    def watch(self, constants: Constants, snapshot: Callable[[], Snapshot]) -> None:
        """Read everything else from `snapshot` at each scrape."""
        self.registry.register(_SchedulerCollector(self.labels, constants, snapshot))

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)


class _SchedulerCollector(Collector):
    def __init__(
        self,
        labels: dict[str, str],
        constants: Constants,
        snapshot: Callable[[], Snapshot],
    ) -> None:
        self._labels = labels
        self._constants = constants
        self._snapshot = snapshot

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing to declare ahead: names are fixed below and used by nobody else here."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """All gauges and counters of this moment. A figure that is unknown is left out."""
        seen = self._snapshot()
        for name, value in (*_gauges(seen), *_constants(self._constants)):
            if value is not None:
                gauge = GaugeMetricFamily(
                    f"sglang:{name}", _TEXT.get(name, name), labels=self._keys
                )
                gauge.add_metric(self._values, float(value))
                yield gauge
        if seen.parity is not None:
            yield from self._ranks(seen.parity)
        for name, value in _counters(seen):
            counter = CounterMetricFamily(name, _TEXT.get(name, name), labels=self._keys)
            counter.add_metric(self._values, float(value))
            yield counter
        if self._constants.draft_class is not None:
            drafter = GaugeMetricFamily(
                "specdec:draft_model_info",
                "1; the label names the class of the draft model that was loaded.",
                labels=[*self._keys, "model_class"],
            )
            drafter.add_metric([*self._values, self._constants.draft_class], 1.0)
            yield drafter
        cached = CounterMetricFamily(
            "sglang:cached_tokens", "Prompt tokens reused.", labels=[*self._keys, "cache_source"]
        )
        cached.add_metric([*self._values, "device"], float(seen.totals.cached_tokens))
        yield cached

    def _ranks(self, parity: RankParity) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        equal = GaugeMetricFamily(
            "specdec:rank_token_parity", "1 while all ranks commit equal tokens.", labels=self._keys
        )
        equal.add_metric(self._values, float(parity.equal))
        yield equal
        compared = CounterMetricFamily(
            "specdec:rank_tokens_compared", "Output tokens compared with the other ranks'.",
            labels=self._keys,
        )  # fmt: skip
        compared.add_metric(self._values, float(parity.tokens))
        yield compared

    @property
    def _keys(self) -> list[str]:
        return list(self._labels)

    @property
    def _values(self) -> list[str]:
        return list(self._labels.values())


_TEXT = {
    "spec_accept_length": "Accepted drafts and the bonus token per verify step, last interval.",
    "spec_accept_rate": "Correct drafts over proposed drafts, last interval.",
    "gen_throughput": "Output tokens per second, last interval.",
    "num_retracted_reqs": "Requests retracted at the last retraction.",
    "token_usage": "Share of the token pool in use.",
    "kv_evictable_tokens": "Tokens kept for reuse that no running request reads.",
    "mamba_evictable_tokens": "Recurrent snapshots kept for reuse.",
    "cache_hit_rate": "Reused share of the tokens of the last prefill batch.",
}


def _gauges(seen: Snapshot) -> list[tuple[str, float | None]]:
    load = seen.load
    return [
        ("num_running_reqs", load.running),
        ("num_queue_reqs", load.queued),
        ("gen_throughput", seen.gen_throughput),
        ("token_usage", load.token_usage),
        ("full_token_usage", load.token_usage),
        ("mamba_usage", load.slot_usage),
        ("num_used_tokens", load.used_tokens),
        ("kv_used_tokens", load.used_tokens),
        ("kv_available_tokens", load.available_tokens),
        ("kv_evictable_tokens", load.evictable_tokens),
        ("cache_hit_rate", seen.cache_hit_rate),
        ("mamba_used_tokens", load.used_slots),
        ("mamba_available_tokens", load.total_slots - load.used_slots),
        ("mamba_evictable_tokens", seen.cache.snapshots),
        ("decode_sum_seq_lens", seen.decode_tokens),
        ("utilization", load.running / load.total_slots),
        ("spec_accept_length", seen.accept_length),
        ("spec_accept_rate", seen.accept_rate),
        ("num_retracted_reqs", seen.last_retracted),
    ]


def _constants(fixed: Constants) -> list[tuple[str, float | None]]:
    drafts = fixed.draft_steps
    return [
        ("max_total_num_tokens", fixed.max_total_tokens),
        ("page_size", fixed.page_size),
        ("num_pages", fixed.max_total_tokens // fixed.page_size),
        ("context_len", fixed.context_length),
        ("weight_memory_usage_gb", fixed.weight_bytes / (1 << 30)),
        ("kv_cache_memory_usage_gb", fixed.kv_cache_bytes / (1 << 30)),
        ("spec_num_steps", drafts),
        ("spec_num_draft_tokens", None if drafts is None else drafts + 1),
    ]


def _counters(seen: Snapshot) -> list[tuple[str, float]]:
    totals = seen.totals
    return [
        ("sglang:evicted_tokens", seen.cache.evicted_tokens),
        ("sglang:num_requests", totals.requests),
        ("sglang:num_aborted_requests", totals.aborted_requests),
        ("sglang:prompt_tokens", totals.prompt_tokens),
        ("sglang:generation_tokens", totals.output_tokens),
        ("sglang:num_retracted_requests", totals.retractions),
        ("sglang:num_retracted_input_tokens", totals.retracted_input_tokens),
        ("sglang:num_retracted_output_tokens", totals.retracted_output_tokens),
        ("sglang:spec_verify_calls", totals.verify_steps),
        ("specdec:proposed_drafts", totals.proposed_drafts),
        ("specdec:correct_drafts", totals.correct_drafts),
        ("specdec:plain_tokens", totals.plain_tokens),
        ("specdec:trimmed_tokens", totals.trimmed_tokens),
        ("specdec:rollbacks", totals.rollbacks),
        ("specdec:replayed_tokens", totals.replayed_tokens),
        ("specdec:prefilled_tokens", totals.prefilled_tokens),
        ("specdec:nonfinite_draft_logits", totals.nonfinite_draft_logits),
        ("specdec:prefill_seconds", totals.prefill_s),
        ("specdec:priming_seconds", totals.priming_s),
        ("specdec:draft_seconds", totals.draft_s),
        ("specdec:verify_seconds", totals.verify_s),
        ("specdec:replay_seconds", totals.replay_s),
    ]
