"""The records as CSV: one row a request, one column a figure, units in the names."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
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


def records_csv(records: Iterable[Record]) -> str:
    """RFC 4180 with a header; a missing value is an empty field. Lines end in CRLF."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for record in records:
        row = _row(record)
        writer.writerow([_field(row[name]) for name in COLUMNS])
    return out.getvalue()


def _row(r: Record) -> dict[str, Any]:
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


def _field(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula is marked as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
