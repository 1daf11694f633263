"""llama.cpp's own server: native `/completion` with token ids, counts in `timings`.

Source: llama.cpp's server README and the server itself (engines/llama-cpp/README.md says what
was tried). Three of its words mislead: `tokens_cached` is the fill of the slot afterwards (reuse
is `timings.cache_n`), `prompt_n` is only what was newly computed, and an unknown model name is
answered as if it were the right one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx

from qualify.client.reply import HttpRequest, RawReply, Reply
from qualify.client.stream import fold_llamacpp
from qualify.engines import counters as names
from qualify.engines.control import Control, integer, text_or_none
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
from qualify.engines.scoring import llamacpp_body, llamacpp_scores
from qualify.engines.speculation import from_llamacpp
from qualify.errors import CellError
from qualify.prompts.prompt import Prompt

_COUNTERS = {
    names.VERIFY_STEPS: "llamacpp:spec_decode_num_drafts_total",
    names.PROPOSED: "llamacpp:spec_decode_num_draft_tokens_total",
    names.CORRECT: "llamacpp:spec_decode_num_accepted_tokens_total",
    names.OUTPUT: "llamacpp:tokens_predicted_total",
    names.PROMPT: "llamacpp:prompt_tokens_total",
    names.CACHED: "llamacpp:prompt_tokens_cached_total",
    names.STEPS: "llamacpp:n_decode_total",
}


class LlamaCppProtocol:
    """See `EngineProtocol`. drafter: none, model, ngram, or None when nothing is known."""

    name = "llamacpp"

    def __init__(
        self,
        base_url: str,
        *,
        drafter: str | None = None,
        no_prefix_cache: bool | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._drafter = drafter
        self._no_prefix_cache = no_prefix_cache
        self._control = Control(self.base_url, transport=transport)

    async def readiness(self) -> Readiness:
        """`/health`: 503 while the model is loaded, 200 then. Generates nothing."""
        answer = await self._control.get("/health", timeout_s=5.0)
        return readiness_of(answer, "/health")

    async def describe(self) -> EngineInfo:
        """`/props`, `/v1/models` and `/slots`. pool_tokens sums the slots' own contexts."""
        props = (await self._control.get("/props")).mapping()
        models = (await self._control.get("/v1/models")).mapping()
        slots = await self._control.get("/slots")
        each = slots.json if slots.ok and isinstance(slots.json, list) else []
        sizes = [integer(s.get("n_ctx")) for s in each if isinstance(s, dict)]
        pool = sum(s for s in sizes if s is not None) if sizes and None not in sizes else None
        settings = props.get("default_generation_settings")
        context = integer(settings.get("n_ctx")) if isinstance(settings, dict) else None
        data = models.get("data")
        entries = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
        first: Mapping[str, Any] = entries[0] if entries else {}
        return EngineInfo(
            model=text_or_none(first.get("id")) or text_or_none(props.get("model_alias")),
            architecture=None,
            context_tokens=context if context is not None else (sizes[0] if sizes else None),
            pool_tokens=pool,
            max_running=integer(props.get("total_slots")),
            version=text_or_none(props.get("build_info")),
            raw={"props": props, "models": models, "slots": each},
        )

    async def capabilities(self) -> Capabilities:
        """Known from what the routes answer; nothing is generated to find out."""
        props = (await self._control.get("/props")).mapping()
        native = "default_generation_settings" in props or "total_slots" in props
        notes = () if native else ("/props does not answer as llama.cpp's does",)
        return Capabilities(
            token_ids_in=True,
            token_ids_out=True,
            flush=False,
            bypass=True,
            cached_tokens=True,
            per_request_speculation=True,
            no_prefix_cache=bool(self._no_prefix_cache),
            notes=notes,
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
        """`/completion` with ids where the prompt has them, else with text proven exact."""
        if not prompt.ids and not prompt.text_exact:
            raise CellError(
                f"Prompt {prompt.id} has no token ids and its text is not proven exact.",
                "Give the campaign a tokenizer: so that ids can be sent.",
            )
        body = {
            "prompt": list(prompt.ids) if prompt.ids else prompt.text,
            "n_predict": sampling.output_tokens,
            "stream": True,
            "return_tokens": True,
            "timings_per_token": True,  # running draft counts: one rise is one verify step
            "cache_prompt": not bypass_cache,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k if sampling.top_k is not None else 0,  # 0 = no limit
            "min_p": 0.0,
            "typical_p": 1.0,
            "repeat_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": sampling.seed if sampling.seed is not None else 0,
            "ignore_eos": sampling.ignore_eos,
            "stop": list(sampling.stop),
        }
        return HttpRequest(
            "POST",
            f"{self.base_url}/completion",
            (("content-type", "application/json"), ("accept", "text/event-stream")),
            json.dumps(body, separators=(",", ":")).encode(),
            first_byte_timeout_s=first_byte_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )

    def decode(self, raw: RawReply) -> Reply:
        reply = fold_llamacpp(raw)
        extras = dict(reply.extras)
        steps = extras.pop("draft_steps", None)  # the histogram below says it in short
        timings = extras.get("timings")
        notes = list(reply.notes)
        if extras.get("truncated") is True:
            notes.append("the answer reached the end of its context (truncated)")
        spec = None
        if isinstance(timings, Mapping) and self._drafter != "none":
            spec = from_llamacpp(timings, steps=steps, drafter=self._drafter)
        return replace(reply, speculation=spec, notes=tuple(notes), extras=extras)

    async def flush(self, *, patience_s: float) -> FlushOutcome:
        """There is no cache reset; a request bypasses the cache with `cache_prompt: false`."""
        return FlushOutcome(False, None, "llama.cpp's server has no cache reset", 0, 0.0)

    async def counters(self) -> dict[str, float] | None:
        """`/metrics` under its own names, and the common ones of `counters` beside them."""
        answer = await self._control.get("/metrics")
        if not answer.ok:
            return None
        found = parse_counters(answer.text)
        common = {name: found[theirs] for name, theirs in _COUNTERS.items() if theirs in found}
        return {**found, **common} if found else None

    async def score_next(self, ids: Sequence[int], *, timeout_s: float) -> Scores:
        answer = await self._control.post("/completion", llamacpp_body(ids), timeout_s=timeout_s)
        return llamacpp_scores(answer)

    async def abort(self, request_id: str) -> bool:
        """No such call: closing the connection ends a request."""
        return False

    async def close(self) -> None:
        await self._control.close()
