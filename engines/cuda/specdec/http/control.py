"""Liveness, facts, flush, abort and metrics: routes that generate nothing, and the one probe."""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from specdec import __version__
from specdec.commands import EngineStopped, FlushBusy
from specdec.draft_facts import DraftFacts
from specdec.http.body import read_json
from specdec.http.errors import ApiError
from specdec.http.other_schema import AbortBody
from specdec.http.sse import unless_gone
from specdec.http.state import ServerState, state_of
from specdec.http.submit import Sampling, collecting, job_spec, new_rid, submit
from specdec.metrics import CONTENT_TYPE

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or "
    "waiting requests, the operation will not be performed.)\n"
)
HEALTH_PREFIX = "HEALTH_CHECK"
ALGORITHMS = {"dflash2": "DFLASH"}  # where SGLang's name is another than the mode's


async def ready(request: Request) -> Response:
    """200 while requests are taken, else 503. Also `/health`: it never generates."""
    return Response(status_code=200 if state_of(request).up else 503)


async def ping(request: Request) -> Response:
    """200 whenever the process answers."""
    return Response(status_code=200)


async def health_generate(request: Request) -> Response:
    """200 after one token has really been generated, 503 where that fails."""
    state = state_of(request)
    if not state.up:
        return Response(status_code=503)
    rid = f"{HEALTH_PREFIX}_{new_rid()}"
    probe = Sampling(max_new_tokens=1, temperature=0.0, ignore_eos=True)
    try:
        stream = await submit(state, [job_spec(state, rid, (0,), probe, measured=False)])
        try:
            await unless_gone(request.receive, collecting(stream))
        finally:
            stream.close()
    except ApiError:
        return Response(status_code=503)
    return Response(status_code=200)


async def model_info(request: Request) -> JSONResponse:
    """What is served."""
    state = state_of(request)
    info = state.engine.info
    return JSONResponse(
        {
            "model_path": str(state.settings.model),
            "served_model_name": state.settings.model_name,
            "tokenizer_path": str(state.settings.model),
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "load_format": "safetensors",
            "reasoning_parser": None,
            "tool_call_parser": None,
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "qwen3_5_text",
            "architectures": [info.architecture],
            "vocab_size": info.vocab_size,
            "context_length": info.context_length,
            "eos_token_ids": sorted(info.eos_token_ids),
            "parameters": info.parameters,
            "num_hidden_layers": info.layers,
        }
    )


async def server_info(request: Request) -> JSONResponse:
    """Every resolved setting, the pool's sizes and the engine's state."""
    return JSONResponse(server_facts(state_of(request)))


def server_facts(state: ServerState) -> dict[str, Any]:
    """The object behind `/server_info`."""
    info, settings = state.engine.info, state.settings
    limit = state.request_limit_tokens
    parity = state.engine.scheduler.runner.rank_parity
    speculative = info.mode != "target-only"
    return {
        **settings.as_json(),
        "model_path": str(settings.model),
        "served_model_name": settings.model_name,
        "device": info.device,
        "dtype": info.dtype,
        "context_length": info.context_length,
        "tp_size": info.tp_size,
        "rank_token_parity": None if parity is None else parity.equal,
        "rank_tokens_compared": None if parity is None else parity.tokens,
        "page_size": info.page_size,
        "chunked_prefill_size": info.prefill_chunk_tokens,
        "max_running_requests": info.max_running_requests,
        "max_total_tokens": info.max_total_tokens,
        "max_total_num_tokens": info.max_total_tokens,
        "max_req_input_len": limit - 1,
        "disable_radix_cache": not info.prefix_cache,
        "speculative_algorithm": ALGORITHMS.get(info.mode, info.mode.upper())
        if speculative
        else None,
        **_draft_facts(info.draft),
        "speculative_num_steps": info.draft_steps if speculative else None,
        "speculative_num_draft_tokens": info.draft_steps + 1 if speculative else None,
        "speculative_adaptive": info.adaptive,
        "invariance": {
            "decode_exact": info.invariance.decode_exact,
            "prefill_exact": info.invariance.prefill_exact,
            "detail": info.invariance.detail,
        },
        "startup_time": state.started_s,
        "version": __version__,
        "kv_events": None,
        "internal_states": [_internal_state(state)],
    }


def _draft_facts(draft: DraftFacts | None) -> dict[str, Any]:
    """The draft model that was loaded, by the class that it declares."""
    if draft is None:
        return {"speculative_draft_model_class": None, "speculative_draft_model_path": None}
    return {
        "speculative_draft_model_class": draft.name,
        "speculative_draft_model_path": None if draft.folder is None else str(draft.folder),
        "speculative_dflash_block_size": draft.block_size,
        "speculative_draft_window_size": draft.window,
        "speculative_target_layer_ids": list(draft.taps),
        "draft_parameters": draft.parameters,
        "draft_tensors": draft.tensors,
        "draft_kv_rows": draft.own_rows or None,
        "draft_kv_bytes": draft.own_bytes or None,
        "draft_logprobs": draft.logprobs,
    }


def _internal_state(state: ServerState) -> dict[str, Any]:
    scheduler, info = state.engine.scheduler, state.engine.info
    recent = scheduler.reporter.since_flush(scheduler.totals)
    load, cache = scheduler.load, scheduler.runner.cache_size
    gigabyte = 1 << 30
    return {
        "last_gen_throughput": scheduler.reporter.gen_throughput,
        "memory_usage": {
            "weight": info.weight_bytes / gigabyte,
            "kvcache": info.kv_bytes_per_token * info.max_total_tokens / gigabyte,
            "token_capacity": info.max_total_tokens,
            "graph": 0.0,
        },
        "effective_max_running_requests_per_dp": info.max_running_requests,
        "avg_spec_accept_length": recent.accept_length,
        "spec_verify_ct": recent.verify_steps,
        "spec_num_proposed_drafts": recent.proposed_drafts,
        "spec_num_correct_drafts": recent.correct_drafts,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.queued,
        "num_used_tokens": load.used_tokens,
        "num_evictable_tokens": load.evictable_tokens,
        "prefix_snapshots": cache.snapshots,
        "prefix_snapshot_bytes": cache.snapshot_bytes,
        "num_retractions": scheduler.totals.retractions,
    }


async def models(request: Request) -> JSONResponse:
    """`/v1/models`: the one model."""
    state = state_of(request)
    card = {
        "id": state.settings.model_name,
        "object": "model",
        "created": int(state.started_s),
        "owned_by": "specdec",
        "root": str(state.settings.model),
        "parent": None,
        "max_model_len": state.request_limit_tokens,
    }
    return JSONResponse({"object": "list", "data": [card]})


async def flush_cache(request: Request) -> PlainTextResponse:
    """200 when everything was idle (or became so within `?timeout=` seconds), else 400."""
    raw = request.query_params.get("timeout", "0")
    try:
        timeout_s = float(raw)
    except ValueError:
        timeout_s = math.nan
    if not 0 <= timeout_s <= 86_400:
        raise ApiError(400, f"'timeout' must be 0 to 86400 seconds, not '{raw[:40]}'.")
    try:
        await state_of(request).engine.flush(timeout_s)
    except FlushBusy as error:
        return PlainTextResponse(str(error), status_code=400)
    except EngineStopped as error:
        return PlainTextResponse(f"{error}\n", status_code=503)
    return PlainTextResponse(FLUSHED)


async def abort_request(request: Request) -> Response:
    """End the requests whose rid starts with `rid`, or all; 200 and empty in any case."""
    state = state_of(request)
    body = await read_json(request, AbortBody, state.settings.max_body_bytes)
    if body.rid or body.abort_all:
        try:
            await state.engine.abort("" if body.abort_all else body.rid or "")
        except EngineStopped as error:
            raise ApiError(503, str(error)) from error
    return Response(status_code=200)


async def metrics(request: Request) -> Response:
    """The Prometheus text, with `--enable-metrics`."""
    state = state_of(request)
    if state.metrics is None:
        raise ApiError(404, "Metrics are off. Start the server with --enable-metrics.")
    return Response(state.metrics.render(), media_type=CONTENT_TYPE)
