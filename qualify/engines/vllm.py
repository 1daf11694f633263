"""vLLM's server: `/v1/completions` with token ids, and what vLLM adds around it.

Source: vllm 0.32 and 0.33, and recorded answers of a real one. What it can do is read from its
own OpenAPI document and from what it answers, never from a version.

Cold: `/reset_prefix_cache` (only in developer mode; it answers 200 with `success: false` while
blocks are held), else a `cache_salt` of each request's own, which no other request shares.
Speculation: `metrics.speculative_decoding` on the usage event where the server was started with
per-request metrics, else server-wide counters, as differences around a cell.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from qualify.client.reply import HttpRequest
from qualify.engines.control import Answer, Control, integer
from qualify.engines.openai import OpenAIProtocol
from qualify.engines.prometheus import sample_labels
from qualify.engines.protocol import (
    Capabilities,
    EngineInfo,
    FlushOutcome,
    Readiness,
    Sampling,
)
from qualify.engines.readiness import readiness_of
from qualify.errors import CellError
from qualify.prompts.prompt import Prompt

RESET = "/reset_prefix_cache"
FLUSH_PAUSE_S = 0.25


class VLLMProtocol(OpenAIProtocol):
    """See `EngineProtocol`."""

    name = "vllm"

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        drafter: str | None = None,
        no_prefix_cache: bool | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(
            base_url,
            model=model,
            drafter=drafter,
            no_prefix_cache=no_prefix_cache,
            transport=transport,
        )
        self._vllm = Control(self.base_url, transport=transport)
        self._salts: bool | None = None  # None: not asked yet

    async def readiness(self) -> Readiness:
        """`/health`: 200 once the engine runs, 503 when it has died. Generates nothing."""
        answer = await self._vllm.get("/health", timeout_s=5.0)
        return readiness_of(answer, "/health")

    async def describe(self) -> EngineInfo:
        """pool_tokens = the blocks times their size, as `vllm:cache_config_info` states them."""
        info = await super().describe()
        metrics = await self._vllm.get("/metrics")
        cache = sample_labels(metrics.text, "vllm:cache_config_info") if metrics.ok else {}
        blocks, size = _whole(cache.get("num_gpu_blocks")), _whole(cache.get("block_size"))
        server = (await self._vllm.get("/server_info?config_format=json")).mapping()
        return replace(
            info,
            pool_tokens=blocks * size if blocks is not None and size is not None else None,
            raw={**info.raw, "cache_config": cache, "server_info": server},
        )

    async def capabilities(self) -> Capabilities:
        """One request of one token for the form of requests; the rest without generating."""
        able = await super().capabilities()
        openapi = (await self._vllm.get("/openapi.json")).mapping()
        self._salts = "cache_salt" in _completion_fields(openapi)
        reset = await self._vllm.post(RESET)
        flush = "success" in reset.mapping()
        notes = list(able.notes)
        if not flush:
            notes.append(f"{RESET} answers {reset.status}: VLLM_SERVER_DEV_MODE=1 enables it")
        if not able.cached_tokens:
            notes.append("cached tokens need --enable-prompt-tokens-details")
        return replace(able, flush=flush, bypass=self._salts, notes=tuple(notes))

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
        """As OpenAI's; a bypass is a salt that only this request has."""
        if bypass_cache and not self._salts:
            raise CellError(
                "This server takes no cache_salt, so a request cannot leave its cache aside.",
                "Start it with VLLM_SERVER_DEV_MODE=1, so that the cache can be flushed.",
            )
        request = super().encode(
            prompt,
            sampling,
            request_id=request_id,
            first_byte_timeout_s=first_byte_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )
        if not bypass_cache:
            return request
        body: dict[str, Any] = {**json.loads(request.body), "cache_salt": request_id}
        return replace(request, body=json.dumps(body, separators=(",", ":")).encode())

    async def flush(self, *, patience_s: float) -> FlushOutcome:
        """`/reset_prefix_cache` until it says `success: true`, with a pause between tries."""
        began, attempts = time.monotonic(), 0
        while True:
            attempts += 1
            left = patience_s - (time.monotonic() - began)
            answer = await self._vllm.post(RESET, timeout_s=max(5.0, left))
            waited = time.monotonic() - began
            if answer.mapping().get("success") is True:
                return FlushOutcome(True, answer.status, answer.text, attempts, waited)
            hopeless = answer.status in (401, 403, 404, 405) or _silent(answer)
            if hopeless or waited + FLUSH_PAUSE_S >= patience_s:
                return FlushOutcome(False, answer.status, answer.text, attempts, waited)
            await asyncio.sleep(FLUSH_PAUSE_S)

    async def close(self) -> None:
        await super().close()
        await self._vllm.close()


def _silent(answer: Answer) -> bool:
    """200 without saying whether anything was reset: it will not say so the next time."""
    return answer.ok and "success" not in answer.mapping()


def _completion_fields(openapi: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the server's own description allows in a completion request."""
    components = openapi.get("components")
    schemas = components.get("schemas") if isinstance(components, dict) else None
    request = schemas.get("CompletionRequest") if isinstance(schemas, dict) else None
    fields = request.get("properties") if isinstance(request, dict) else None
    return fields if isinstance(fields, dict) else {}


def _whole(value: str | None) -> int | None:
    return integer(int(value)) if value is not None and value.isdigit() else None
