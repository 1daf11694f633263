"""Requests that a server has to refuse, and one that a drafter may not serve."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from qualify.client.exchange import Exchange
from qualify.client.reply import HttpRequest
from qualify.prompts.prompt import Prompt
from qualify.run.probes.probing import Interrupted, Probing
from qualify.run.sending import IDLE_TIMEOUT_S

# What asks each protocol's server for the scores of its tokens.
LOGPROBS: dict[str, dict[str, Any]] = {
    "sglang": {"return_logprob": True, "top_logprobs_num": 2},
    "llamacpp": {"n_probs": 2},
    "vllm": {"logprobs": 2},
    "openai": {"logprobs": 2},
}
BODY_SHOWN = 300


async def ask(probing: Probing, kind: str, prompt: Prompt, more: dict[str, Any]) -> None:
    """Send the prompt with `more` in its body; how it was answered is one line of "refusal"."""
    protocol, like = probing.attempt.server.protocol, probing.item.like
    request = protocol.encode(
        prompt,
        dataclasses.replace(like.sampling, output_tokens=2, ignore_eos=True),
        request_id=f"{probing.attempt.id}/{kind}",
        first_byte_timeout_s=like.first_token_timeout_s,
        idle_timeout_s=IDLE_TIMEOUT_S,
    )
    raw = await Exchange(with_fields(request, more)).run()
    if probing.attempt.stop.is_set():
        raise Interrupted
    body = b"".join(a.data for a in raw.arrivals)[:BODY_SHOWN]
    probing.note(
        "refusal",
        kind=kind,
        prompt_tokens=len(prompt.ids),
        status=raw.status,
        end=raw.end,
        detail=raw.detail,
        body=body.decode("utf-8", "replace"),
    )


def with_fields(request: HttpRequest, more: dict[str, Any]) -> HttpRequest:
    if not more:
        return request
    body = {**json.loads(request.body), **more}
    return dataclasses.replace(request, body=json.dumps(body, separators=(",", ":")).encode())
