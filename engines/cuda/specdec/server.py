"""The ASGI application: which path leads to which route, and what the scrape sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from specdec.http import control
from specdec.http.chat import chat_completions
from specdec.http.completions import completions
from specdec.http.errors import ApiError, error_response, on_api_error, on_unexpected
from specdec.http.generate import generate
from specdec.http.loads import loads
from specdec.http.state import ServerState
from specdec.http.tokens import detokenize, tokenize
from specdec.metrics import Constants, Snapshot
from specdec.request import Phase

Endpoint = Callable[[Request], Awaitable[Any]]

# (path, methods, endpoint); the get_* names are SGLang's older ones.
ROUTES: tuple[tuple[str, tuple[str, ...], Endpoint], ...] = (
    ("/health", ("GET",), control.ready),
    ("/ready", ("GET",), control.ready),
    ("/health_generate", ("GET",), control.health_generate),
    ("/ping", ("GET", "POST"), control.ping),
    ("/model_info", ("GET",), control.model_info),
    ("/get_model_info", ("GET",), control.model_info),
    ("/server_info", ("GET",), control.server_info),
    ("/get_server_info", ("GET",), control.server_info),
    ("/flush_cache", ("GET", "POST"), control.flush_cache),
    ("/abort_request", ("POST",), control.abort_request),
    ("/metrics", ("GET",), control.metrics),
    ("/generate", ("POST", "PUT"), generate),
    ("/tokenize", ("POST",), tokenize),
    ("/v1/tokenize", ("POST",), tokenize),
    ("/detokenize", ("POST",), detokenize),
    ("/v1/detokenize", ("POST",), detokenize),
    ("/v1/loads", ("GET",), loads),
    ("/v1/models", ("GET",), control.models),
    ("/v1/completions", ("POST",), completions),
    ("/v1/chat/completions", ("POST",), chat_completions),
)


def build_app(state: ServerState) -> Starlette:
    """The application for a started engine."""
    if state.metrics is not None:
        state.metrics.watch(_constants(state), lambda: snapshot(state))
    app = Starlette(
        routes=[Route(path, endpoint, methods=list(m)) for path, m, endpoint in ROUTES],
        exception_handlers={
            ApiError: on_api_error,
            HTTPException: _on_http_exception,
            Exception: on_unexpected,
        },
    )
    app.state.server = state
    return app


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {
        404: f"There is no '{request.url.path[:200]}' here.",
        405: f"'{request.url.path[:200]}' does not take {request.method}.",
    }
    message = messages.get(error.status_code, str(error.detail))
    response = error_response(request.url.path, ApiError(error.status_code, message))
    response.headers.update(error.headers or {})
    return response


def _constants(state: ServerState) -> Constants:
    info = state.engine.info
    return Constants(
        max_total_tokens=info.max_total_tokens,
        page_size=info.page_size,
        context_length=info.context_length,
        weight_bytes=info.weight_bytes,
        kv_cache_bytes=info.kv_bytes_per_token * info.max_total_tokens,
        draft_steps=None if info.mode == "target-only" else info.draft_steps,
        draft_class=None if info.draft is None else info.draft.name,
    )


def snapshot(state: ServerState) -> Snapshot:
    """What a scrape sees now. Counts may be a step apart from one another, never torn."""
    scheduler = state.engine.scheduler
    reporter = scheduler.reporter
    return Snapshot(
        load=scheduler.load,
        totals=scheduler.totals,
        gen_throughput=reporter.gen_throughput,
        accept_length=reporter.interval_accept_length,
        accept_rate=reporter.interval_accept_rate,
        last_retracted=reporter.last_retracted,
        decode_tokens=scheduler.tokens_in(Phase.DECODE),
        cache=scheduler.runner.cache_size,
        cache_hit_rate=reporter.cache_hit_rate,
        parity=scheduler.runner.rank_parity,
    )
