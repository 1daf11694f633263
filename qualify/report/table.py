"""The records as one table: a row a request, a column a figure, units in the names."""

from __future__ import annotations

from typing import Any

from qualify.records.schema import Record

TIMES = (
    "ttft_s", "t_first_s", "t_last_s", "t_end_s", "n_first", "tpot_ms", "tpot_common_ms",
    "max_gap_ms",
)  # fmt: skip
PLAIN = (
    "run", "launch", "round", "side", "mode", "cell", "workload", "tokens", "concurrency",
    "phase", "index", "turn", "prompt_id", "prompt_sha256", "started_at", "t_start_s", "ok",
)  # fmt: skip
INTEGERS = ("V", "P", "C", "N0", "T", "W")
COLUMNS = (
    *PLAIN, "failure", "http_status", "prompt_tokens", "completion_tokens", "cached_tokens",
    *TIMES, "finish_reason", *INTEGERS, "cache_policy", "cache_method", "output_sha256",
    "client_delay_ms",
)  # fmt: skip

_WHOLE = {
    "round", "tokens", "concurrency", "index", "turn", "http_status", "prompt_tokens",
    "completion_tokens", "cached_tokens", "n_first", *INTEGERS,
}  # fmt: skip
_REAL = {*TIMES, "t_start_s", "client_delay_ms"} - {"n_first"}


def sql_type(column: str) -> str:
    """The column's type in an analytical database."""
    if column in _WHOLE:
        return "BIGINT"
    if column in _REAL:
        return "DOUBLE"
    return "BOOLEAN" if column == "ok" else "VARCHAR"


def row(r: Record) -> dict[str, Any]:
    """Column -> value; missing is None."""
    return {
        **{name: getattr(r, name) for name in PLAIN},
        **{name: getattr(r.timing, name) for name in TIMES},
        **{name: getattr(r.speculation, name, None) for name in INTEGERS},
        "failure": r.failure.cause if r.failure is not None else None,
        "http_status": r.http_status,
        "prompt_tokens": r.usage.prompt_tokens,
        "completion_tokens": r.usage.completion_tokens,
        "cached_tokens": r.usage.cached_tokens,
        "finish_reason": r.finish_reason,
        "cache_policy": r.cache.policy,
        "cache_method": r.cache.method,
        "output_sha256": r.output_sha256,
        "client_delay_ms": r.client_delay_ms,
    }
