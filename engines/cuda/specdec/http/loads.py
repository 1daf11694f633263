"""`/v1/loads`: how busy the server is, in SGLang's layout."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from specdec import __version__
from specdec.http.errors import ApiError
from specdec.http.state import ServerState, state_of

# Sections that `include` may name. A core is always there; this engine has nothing to say in two.
SECTIONS = ("core", "memory", "spec", "lora", "disagg", "queues", "all")
_GIGABYTE = 1 << 30


async def loads(request: Request) -> JSONResponse:
    """The one rank's load. `?include=` takes sections joined by commas (default all)."""
    query = request.query_params
    wanted = [name.strip() for name in query.get("include", "all").split(",")]
    unknown = next((name for name in wanted if name not in SECTIONS), None)
    if unknown is not None:
        raise ApiError(
            400, f"'include' has no section '{unknown[:40]}'. Known: {', '.join(SECTIONS)}."
        )
    if query.get("format", "json") != "json":
        raise ApiError(400, "'format' must be json. Prometheus series are at /metrics.")
    if query.get("dp_rank", "0") != "0":
        raise ApiError(400, "'dp_rank' must be 0: this engine is one process.")
    state = state_of(request)
    every = "all" in wanted
    optional = {
        name: part for section, name, part in _sections(state) if every or section in wanted
    }
    entry = {**_core(state), **optional}
    return JSONResponse({"timestamp": time.time(), "version": __version__, "loads": [entry]})


def _core(state: ServerState) -> dict[str, Any]:
    scheduler, info = state.engine.scheduler, state.engine.info
    load, reporter = scheduler.load, scheduler.reporter
    return {
        "dp_rank": 0,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.queued,
        "num_used_tokens": load.used_tokens,
        "num_total_tokens": load.used_tokens,
        "max_total_num_tokens": load.total_tokens,
        "max_running_requests": info.max_running_requests,
        "token_usage": load.token_usage,
        "gen_throughput": reporter.gen_throughput,
        "cache_hit_rate": reporter.cache_hit_rate,
    }


def _sections(state: ServerState) -> list[tuple[str, str, dict[str, Any]]]:
    """(name in `include`, name in the answer, content)."""
    scheduler, info = state.engine.scheduler, state.engine.info
    reporter = scheduler.reporter
    memory = {
        "weight_gb": info.weight_bytes / _GIGABYTE,
        "kv_cache_gb": info.kv_bytes_per_token * info.max_total_tokens / _GIGABYTE,
        "graph_gb": 0.0,
        "token_capacity": info.max_total_tokens,
    }
    speculative = {
        "accept_length": reporter.interval_accept_length,
        "accept_rate": reporter.interval_accept_rate,
    }
    return [
        ("memory", "memory", memory),
        ("spec", "speculative", speculative),
        ("queues", "queues", {"waiting": scheduler.load.queued}),
    ]
