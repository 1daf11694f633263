"""PocketLLM's persistent worker, behind the adapter of engines/pocketllm/serve.py.

Source: PocketLLM's result line (key=value words, order no contract) and its guide. The worker
answers when all is generated, so the client sees no first token: TTFT and TPOT are undefined
there, and what the engine says of its own prefill and decode seconds is kept as said, under
`extras.meta_info.engine`. Its names keep `mtp_` for every drafter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from qualify.client.reply import HttpRequest, RawReply, Reply
from qualify.client.stream import fold_sglang
from qualify.engines.protocol import Capabilities, FlushOutcome, Sampling, Scores
from qualify.engines.sglang import SGLangProtocol
from qualify.engines.speculation import from_pocketllm
from qualify.errors import CellError
from qualify.prompts.prompt import Prompt


class PocketLLMProtocol(SGLangProtocol):
    """See `EngineProtocol`; the control routes are SGLang's."""

    name = "pocketllm"

    async def capabilities(self) -> Capabilities:
        """Its prefix cache cannot be emptied: cold means --qwen-no-prefix-cache."""
        able = await super().capabilities()
        notes = [*able.notes, "nothing is streamed: TTFT and TPOT are undefined from outside"]
        if not able.no_prefix_cache:
            notes.append("the prefix cache has no reset: cold needs qwen-no-prefix-cache")
        return replace(able, flush=False, ends=False, notes=tuple(notes))

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
        """Ids only, greedy, to the full length: the worker does nothing else."""
        if bypass_cache:
            raise CellError(
                "PocketLLM has no per-request switch that leaves its prefix cache aside.",
                "Measure cold cells in a profile with qwen-no-prefix-cache.",
            )
        if not prompt.ids:
            raise CellError(
                f"Prompt {prompt.id} has no token ids, and the worker reads nothing else.",
                "Give the campaign a tokenizer: so that ids can be sent.",
            )
        if sampling.temperature != 0 or not sampling.ignore_eos:
            raise CellError(
                "PocketLLM's worker is greedy and never stops at an end of text.",
                "Write temperature: 0, ignore_eos: true and until: length.",
            )
        body: dict[str, Any] = {
            "input_ids": list(prompt.ids),
            "sampling_params": {
                "max_new_tokens": sampling.output_tokens,
                "temperature": 0,
                "ignore_eos": True,
            },
            "stream": False,
            "rid": request_id,
        }
        return HttpRequest(
            "POST",
            f"{self.base_url}/generate",
            (("content-type", "application/json"), ("accept", "application/json")),
            json.dumps(body, separators=(",", ":")).encode(),
            first_byte_timeout_s=first_byte_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )

    def decode(self, raw: RawReply) -> Reply:
        """Ranks that did not agree on the tokens are noted; no count of theirs is averaged."""
        reply = fold_sglang(raw)
        meta = reply.extras.get("meta_info")
        if not isinstance(meta, Mapping):
            return reply
        engine = meta.get("engine")
        spec = None
        if isinstance(engine, Mapping) and self._drafter != "none":
            spec = from_pocketllm(engine)
        notes = list(reply.notes)
        if meta.get("rank_token_parity") is False:
            notes.append("the tensor-parallel ranks generated different tokens")
        return replace(reply, speculation=spec, notes=tuple(notes))

    async def flush(self, *, patience_s: float) -> FlushOutcome:
        return FlushOutcome(False, None, "PocketLLM's worker has no cache reset", 0, 0.0)

    async def counters(self) -> dict[str, float] | None:
        """There are none: every figure is a request's own."""
        return None

    async def score_next(self, ids: Sequence[int], *, timeout_s: float) -> Scores:
        raise CellError("PocketLLM's worker gives no log probabilities.", "")

    async def abort(self, request_id: str) -> bool:
        """The worker reads its next line when it has answered this one."""
        return False
