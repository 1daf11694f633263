"""SGLang's native surface (and the bundled engine's): `/generate` with input_ids.

Source: sglang 0.5.17 to 0.5.23. Everything is tried in the newest form first and falls back to
the older one when the server does not know it; no version is ever compared.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx

from qualify.client.reply import HttpRequest, RawReply, Reply
from qualify.client.stream import fold_sglang
from qualify.engines import counters as names
from qualify.engines.control import Answer, Control, first_integer, integer, text_or_none
from qualify.engines.prometheus import parse_counters
from qualify.engines.protocol import (
    Capabilities,
    EngineInfo,
    FlushOutcome,
    Readiness,
    Sampling,
    Scores,
)
from qualify.engines.readiness import readiness_of
from qualify.engines.scoring import sglang_body, sglang_scores
from qualify.engines.speculation import from_sglang
from qualify.errors import CellError
from qualify.prompts.prompt import Prompt

FLUSH_PAUSE_S = 0.25  # F040: at least 0.2 s between tries

_COUNTERS = {
    names.VERIFY_STEPS: ("sglang:spec_verify_calls_total",),
    names.PROPOSED: ("specdec:proposed_drafts_total",),
    names.CORRECT: ("specdec:correct_drafts_total",),
    names.PLAIN: ("specdec:plain_tokens_total",),
    names.TRIMMED: ("specdec:trimmed_tokens_total",),
    names.OUTPUT: ("sglang:generation_tokens_total",),
    names.PROMPT: ("sglang:prompt_tokens_total",),
    names.CACHED: ("sglang:cached_tokens_total",),
    names.REQUESTS: ("sglang:num_requests_total",),
    names.RETRACTIONS: ("sglang:num_retracted_requests_total",),
}


class SGLangProtocol:
    """See `EngineProtocol`.

    health_generates: whether a plain `/health` makes the server generate a token, as it does
    upstream unless SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0 was set for it. It is then
    never asked (rule 6).
    """

    name = "sglang"

    def __init__(
        self,
        base_url: str,
        *,
        drafter: str | None = None,
        no_prefix_cache: bool | None = None,
        health_generates: bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._drafter = drafter
        self._no_prefix_cache = no_prefix_cache
        self._health_generates = health_generates
        self._control = Control(self.base_url, transport=transport)

    async def readiness(self) -> Readiness:
        """`/ready`; where that is unknown `/health` if it is safe, else `/model_info`."""
        path = "/ready"
        answer = await self._control.get(path, timeout_s=5.0)
        if answer.status == 404 and not self._health_generates:
            path = "/health"
            answer = await self._control.get(path, timeout_s=30.0)
        elif answer.status == 404:
            path = "/model_info"
            answer = await self._first(path, "/get_model_info")
        return readiness_of(answer, path)

    async def describe(self) -> EngineInfo:
        server = (await self._first("/server_info", "/get_server_info")).mapping()
        model = (await self._first("/model_info", "/get_model_info")).mapping()
        architectures = model.get("architectures")
        states = server.get("internal_states")
        state = states[0] if isinstance(states, list) and states else {}
        state = state if isinstance(state, dict) else {}
        return EngineInfo(
            model=text_or_none(model.get("served_model_name"))
            or text_or_none(server.get("served_model_name"))
            or text_or_none(model.get("model_path")),
            architecture=str(architectures[0])
            if isinstance(architectures, list) and architectures
            else text_or_none(model.get("model_type")),
            context_tokens=first_integer(
                server, "context_length", "context_len", "max_model_len", "max_context_length"
            ),
            pool_tokens=first_integer(server, "max_total_num_tokens"),
            max_running=first_integer(state, "effective_max_running_requests_per_dp")
            or first_integer(server, "max_running_requests"),
            version=text_or_none(server.get("version")),
            raw={"server_info": server, "model_info": model},
        )

    async def capabilities(self) -> Capabilities:
        """From `/server_info`; nothing is generated and nothing flushed to find out."""
        server = (await self._first("/server_info", "/get_server_info")).mapping()
        off = server.get("disable_radix_cache")
        stated = self._no_prefix_cache
        return Capabilities(
            token_ids_in=True,
            token_ids_out=True,
            flush=True,
            bypass=False,
            cached_tokens=True,
            per_request_speculation=True,
            no_prefix_cache=stated if stated is not None else off is True,
            notes=() if server else ("/server_info does not answer",),
        )

    def encode(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        request_id: str,
        bypass_cache: bool = False,
        first_byte_timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
    ) -> HttpRequest:
        """`/generate` with `input_ids`, else with text proven exact."""
        if bypass_cache:
            raise CellError(
                "SGLang has no per-request switch that leaves its prefix cache aside.",
                "Flush before the cell instead: cache: cold does.",
            )
        if not prompt.ids and not prompt.text_exact:
            raise CellError(
                f"Prompt {prompt.id} has no token ids and its text is not proven exact.",
                "Give the campaign a tokenizer: so that ids can be sent.",
            )
        params: dict[str, Any] = {
            "max_new_tokens": sampling.output_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k if sampling.top_k is not None else -1,  # -1 = no limit
            "min_p": 0.0,
            "frequency_penalty": 0.0,
            "presence_penalty": 0.0,
            "repetition_penalty": 1.0,
            "ignore_eos": sampling.ignore_eos,
        }
        if sampling.seed is not None:
            params["sampling_seed"] = sampling.seed
        if sampling.stop:
            params["stop"] = list(sampling.stop)
        given: dict[str, Any] = (
            {"input_ids": list(prompt.ids)} if prompt.ids else {"text": prompt.text}
        )
        body = {**given, "sampling_params": params, "stream": True, "rid": request_id}
        return HttpRequest(
            "POST",
            f"{self.base_url}/generate",
            (("content-type", "application/json"), ("accept", "text/event-stream")),
            json.dumps(body, separators=(",", ":")).encode(),
            first_byte_timeout_s=first_byte_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )

    def decode(self, raw: RawReply) -> Reply:
        reply = fold_sglang(raw)
        meta = reply.extras.get("meta_info")
        notes = list(reply.notes)
        spec = None
        if isinstance(meta, Mapping):
            if self._drafter != "none":
                spec = from_sglang(meta)
            retractions = integer(meta.get("num_retractions"))
            if retractions:
                notes.append(f"the request was retracted {retractions} times")
            if meta.get("rank_token_parity") is False:
                notes.append("the tensor-parallel ranks generated different tokens")
        return replace(reply, speculation=spec, notes=tuple(notes))

    async def flush(self, *, patience_s: float) -> FlushOutcome:
        """`/flush_cache`, again and again with a pause while the server is busy.

        A server that is refused once because a request is still being aborted says 400 for a
        few seconds; the last status and body are kept. At least one try is made.
        """
        began = time.monotonic()
        attempts = 0
        while True:
            attempts += 1
            left = patience_s - (time.monotonic() - began)
            answer = await self._control.post("/flush_cache", timeout_s=max(5.0, left))
            waited = time.monotonic() - began
            if answer.ok:
                return FlushOutcome(True, answer.status, answer.text, attempts, waited)
            hopeless = answer.status in (401, 403, 404, 405)
            if hopeless or waited + FLUSH_PAUSE_S >= patience_s:
                return FlushOutcome(False, answer.status, answer.text, attempts, waited)
            await asyncio.sleep(FLUSH_PAUSE_S)

    async def counters(self) -> dict[str, float] | None:
        """`/metrics` (needs --enable-metrics) and the common names beside its own."""
        answer = await self._control.get("/metrics")
        if not answer.ok:
            return None
        found = parse_counters(answer.text)
        common = {
            name: found[theirs]
            for name, aliases in _COUNTERS.items()
            for theirs in aliases
            if theirs in found
        }
        return {**found, **common} if found else None

    async def score_next(self, ids: Sequence[int], *, timeout_s: float) -> Scores:
        answer = await self._control.post("/generate", sglang_body(ids), timeout_s=timeout_s)
        return sglang_scores(answer)

    async def abort(self, request_id: str) -> bool:
        if not request_id:  # an empty rid is ignored there, or worse: every rid starts with it
            return False
        return (await self._control.post("/abort_request", {"rid": request_id})).ok

    async def close(self) -> None:
        await self._control.close()

    async def _first(self, *paths: str) -> Answer:
        """The first of `paths` that the server knows."""
        answer = Answer(None, "no path")
        for path in paths:
            answer = await self._control.get(path)
            if answer.status != 404:
                break
        return answer
