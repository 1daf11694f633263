"""Everything that `specdec serve` can be told, resolved once at the start."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specdec.contract import DraftKv, Fp8Weights, KvDtype, Mode, RunnerOptions


@dataclass(frozen=True)
class ServeSettings:
    """Launch settings. Bytes, seconds and tokens as the names say; None means "as documented"."""

    model: Path
    mode: Mode = "target-only"
    device: str = "auto"
    tp_size: int = 1
    tp_timeout_s: float = 120.0
    host: str = "127.0.0.1"
    port: int = 30000
    served_model_name: str | None = None
    draft_model: Path | None = None
    draft_kv: DraftKv = "shared"
    draft_steps: int | None = None
    draft_adaptive: bool = False
    prefill_chunk_tokens: int = 512
    max_total_tokens: int | None = None
    max_running_requests: int = 8
    max_queued_requests: int | None = None
    context_length: int | None = None
    page_size: int = 64
    random_seed: int = 0
    threads: int | None = None
    prefix_cache: bool = True
    snapshot_interval: int = 4096
    max_snapshots: int = 256
    max_snapshot_bytes: int = 1 << 30
    fp8_weights: Fp8Weights = "stored"
    kv_cache_dtype: KvDtype = "float32"
    attention_window: int = 0
    attention_sink_tokens: int = 0
    enable_metrics: bool = False
    enable_cache_report: bool = False
    incremental_streaming_output: bool = False
    stream_response_default_include_usage: bool = False
    decode_log_interval: int = 40
    max_body_bytes: int = 32 << 20
    drain_timeout_s: float = 10.0
    log_level: str = "info"

    @property
    def model_name(self) -> str:
        """The name clients see: `--served-model-name`, else the checkpoint's folder as given."""
        return self.served_model_name or str(self.model)

    def runner_options(self) -> RunnerOptions:
        """The part that the core needs."""
        return RunnerOptions(
            mode=self.mode,
            device=self.device,
            tp_size=self.tp_size,
            tp_timeout_s=self.tp_timeout_s,
            draft_model=self.draft_model,
            draft_kv=self.draft_kv,
            draft_steps=self.draft_steps,
            adaptive=self.draft_adaptive,
            prefill_chunk_tokens=self.prefill_chunk_tokens,
            max_total_tokens=self.max_total_tokens,
            max_running_requests=self.max_running_requests,
            context_length=self.context_length,
            page_size=self.page_size,
            random_seed=self.random_seed,
            threads=self.threads,
            prefix_cache=self.prefix_cache,
            snapshot_interval=self.snapshot_interval,
            max_snapshots=self.max_snapshots,
            max_snapshot_bytes=self.max_snapshot_bytes,
            fp8_weights=self.fp8_weights,
            kv_cache_dtype=self.kv_cache_dtype,
            attention_window=self.attention_window,
            attention_sink_tokens=self.attention_sink_tokens,
        )

    def as_json(self) -> dict[str, Any]:
        """All settings under their own names, as `/server_info` shows them."""
        draft = None if self.draft_model is None else str(self.draft_model)
        return {**asdict(self), "model": str(self.model), "draft_model": draft}
