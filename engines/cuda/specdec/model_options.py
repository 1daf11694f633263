"""The options of ``specdec serve`` that concern the model, for commands without a server.

Taken from ``serve`` itself, so that a flag means the same everywhere and none is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from specdec.serve_command import serve

SERVER_ONLY = frozenset(
    {
        "host", "port", "served_model_name", "max_queued_requests", "enable_metrics",
        "enable_cache_report", "incremental_streaming_output",
        "stream_response_default_include_usage", "decode_log_interval", "max_body_bytes",
        "drain_timeout_s", "log_level", "max_running_requests",
    }
)  # fmt: skip


def model_options(*without: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put them before the command's own options, those named ``without`` left out; they arrive
    under the names of ``ServeSettings``."""
    kept = [o for o in serve.params if o.name not in SERVER_ONLY and o.name not in without]

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        known: list[click.Parameter] = getattr(function, "__click_params__", [])
        function.__click_params__ = [*known, *reversed(kept)]  # type: ignore[attr-defined]
        return function

    return add
