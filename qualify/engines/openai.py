"""Any server with OpenAI's `/v1/completions` or `/v1/chat/completions`.

What one accepts beyond the standard (token ids, ignore_eos, ids out) is found by asking: one
request of one token for each form, richest first. `capabilities` sends these; readiness does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx

from qualify.client.reply import HttpRequest, RawReply, Reply
from qualify.client.stream import fold_openai
from qualify.engines import counters as names
from qualify.engines.control import Answer, Control, first_integer, integer, text_or_none
from qualify.engines.openai_forms import (
    FORMS,
    PROBE_IDS,
    PROBE_TEXT,
    PROBE_TIMEOUT_S,
    Api,
    Form,
    as_reply,
    request_body,
)
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
from qualify.engines.scoring import openai_body, openai_scores
from qualify.engines.speculation import from_llamacpp, from_vllm
from qualify.errors import CellError
from qualify.prompts.prompt import Prompt


class OpenAIProtocol:
    """See `EngineProtocol`. api: which route measured requests take."""

    name = "openai"

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api: Api = "completions",
        drafter: str | None = None,
        no_prefix_cache: bool | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._model = model
        self._api: Api = api
        self._drafter = drafter
        self._no_prefix_cache = no_prefix_cache
        self._form: Form | None = None
        self._control = Control(self.base_url, transport=transport)

    async def readiness(self) -> Readiness:
        """`/v1/models` answers 200 once a server can serve, and generates nothing."""
        answer = await self._control.get("/v1/models", timeout_s=5.0)
        return readiness_of(answer, "/v1/models")

    async def describe(self) -> EngineInfo:
        models = (await self._control.get("/v1/models")).mapping()
        version = (await self._control.get("/version")).mapping()
        data = models.get("data")
        entries = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
        named = next((m for m in entries if m.get("id") == self._model), None)
        entry = named or (entries[0] if entries else {})
        answered = text_or_none(entry.get("id"))
        if self._model is None or named is None:
            self._model = answered or self._model  # its own name is the one it takes
        meta = entry.get("meta")
        return EngineInfo(
            model=answered,
            architecture=None,
            context_tokens=first_integer(entry, "max_model_len", "context_length")
            or (integer(meta.get("n_ctx")) if isinstance(meta, dict) else None),
            pool_tokens=None,
            max_running=None,
            version=text_or_none(version.get("version")),
            raw={"models": models, "version": version},
        )

    async def capabilities(self) -> Capabilities:
        """Ask with one-token requests, richest form first; raises CellError when none works."""
        if self._model is None:
            await self.describe()
        last: Answer | None = None
        for form in FORMS if self._api == "completions" else FORMS[3:]:
            given: Any = list(PROBE_IDS) if form.token_ids else PROBE_TEXT
            probe = Sampling(output_tokens=1, ignore_eos=form.ignore_eos)
            body = request_body(form, self._api, self._model, given, probe)
            last = await self._control.post(self._path, body, timeout_s=PROBE_TIMEOUT_S)
            reply = as_reply(last) if last.ok else None
            if reply is None or reply.failure is not None:
                continue
            if form.token_ids and reply.usage.prompt_tokens != len(PROBE_IDS):
                continue  # accepted, but read as something else
            self._form = form
            return Capabilities(
                token_ids_in=form.token_ids,
                token_ids_out=reply.ids is not None,
                flush=False,
                bypass=False,
                cached_tokens=reply.usage.cached_tokens is not None,
                per_request_speculation=False,
                no_prefix_cache=bool(self._no_prefix_cache),
                notes=() if form.ignore_eos else ("ignore_eos is refused",),
            )
        said = f"{last.status}: {last.text.strip()[:300]}" if last is not None else "nothing"
        raise CellError(
            f"{self.base_url} answers no form of a streamed request with usage ({said}).",
            "A server that reports no usage in its streams cannot be measured (rule 1).",
        )

    @property
    def _path(self) -> str:
        return "/v1/completions" if self._api == "completions" else "/v1/chat/completions"

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
        """Ids where `capabilities` found that they are taken, else text proven exact."""
        if bypass_cache:
            raise CellError(
                "A plain OpenAI server has no switch that leaves its prefix cache aside.",
                "Measure it with cache: warm, or state no_prefix_cache: in its definition.",
            )
        form = self._form
        if form is None:
            raise CellError(
                "What this server accepts was not asked yet.", "Call capabilities() first."
            )
        if sampling.ignore_eos and not form.ignore_eos:
            raise CellError(
                "This server refuses ignore_eos, so outputs cannot be held to a length.",
                "Write ignore_eos: false and until: eos in the campaign.",
            )
        use_ids = form.token_ids and bool(prompt.ids) and self._api == "completions"
        if not use_ids and not prompt.text_exact:
            raise CellError(
                f"This server takes text only, and the text of {prompt.id} is not proven to "
                f"re-tokenise to its {len(prompt.ids)} tokens.",
                "Choose another seed: or source for this workload, or an engine that takes ids.",
            )
        sent = list(prompt.ids) if use_ids else prompt.text
        body = request_body(form, self._api, self._model, sent, sampling)
        return HttpRequest(
            "POST",
            self.base_url + self._path,
            (
                ("content-type", "application/json"),
                ("accept", "text/event-stream"),
                ("x-request-id", request_id),
            ),
            json.dumps(body, separators=(",", ":")).encode(),
            first_byte_timeout_s=first_byte_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )

    def decode(self, raw: RawReply) -> Reply:
        """Speculation from what llama.cpp (`timings`) or vLLM (`metrics`) add to the stream."""
        reply = fold_openai(raw)
        if self._drafter == "none":
            return reply
        metrics, timings = reply.extras.get("metrics"), reply.extras.get("timings")
        spec = None
        if isinstance(metrics, Mapping):
            spec = from_vllm(metrics)
        elif isinstance(timings, Mapping):
            steps = reply.extras.get("draft_steps")
            spec = from_llamacpp(timings, steps=steps, drafter=self._drafter)
        return replace(reply, speculation=spec)

    async def flush(self, *, patience_s: float) -> FlushOutcome:
        return FlushOutcome(False, None, "OpenAI's interface has no cache reset", 0, 0.0)

    async def counters(self) -> dict[str, float] | None:
        """Whatever counters `/metrics` has, and vLLM's under the common names."""
        answer = await self._control.get("/metrics")
        found = parse_counters(answer.text) if answer.ok else {}
        common = {
            name: found[f"vllm:{theirs}_total"]
            for name, theirs in _VLLM.items()
            if f"vllm:{theirs}_total" in found
        }
        return {**found, **common} if found else None

    async def score_next(self, ids: Sequence[int], *, timeout_s: float) -> Scores:
        answer = await self._control.post(
            "/v1/completions", openai_body(self._model, ids), timeout_s=timeout_s
        )
        return openai_scores(answer)

    async def abort(self, request_id: str) -> bool:
        """No such call: closing the connection ends a request."""
        return False

    async def close(self) -> None:
        await self._control.close()


_VLLM = {
    names.VERIFY_STEPS: "spec_decode_num_drafts",
    names.PROPOSED: "spec_decode_num_draft_tokens",
    names.CORRECT: "spec_decode_num_accepted_tokens",
    names.OUTPUT: "generation_tokens",
    names.PROMPT: "prompt_tokens",
    names.CACHED: "prompt_tokens_cached",
    names.RETRACTIONS: "num_preemptions",
}
