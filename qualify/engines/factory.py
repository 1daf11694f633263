"""Which protocol speaks to which server; a plain table, so that nothing registers itself."""

from __future__ import annotations

from qualify.engines.llamacpp import LlamaCppProtocol
from qualify.engines.openai import OpenAIProtocol
from qualify.engines.pocketllm import PocketLLMProtocol
from qualify.engines.protocol import EngineProtocol
from qualify.engines.resolve import ResolvedLaunch
from qualify.engines.sglang import SGLangProtocol
from qualify.engines.vllm import VLLMProtocol

HEALTH_VARIABLE = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"


def protocol_for(resolved: ResolvedLaunch, base_url: str) -> EngineProtocol:
    """A protocol object for the server of `resolved` at `base_url`; nothing is sent yet."""
    if resolved.protocol == "llamacpp":
        return LlamaCppProtocol(
            base_url, drafter=resolved.drafter, no_prefix_cache=resolved.no_prefix_cache
        )
    if resolved.protocol == "sglang":
        return SGLangProtocol(
            base_url,
            drafter=resolved.drafter,
            no_prefix_cache=resolved.no_prefix_cache,
            health_generates=resolved.env.get(HEALTH_VARIABLE) != "0",
        )
    if resolved.protocol == "vllm":
        return VLLMProtocol(
            base_url,
            model=resolved.alias or resolved.model,
            drafter=resolved.drafter,
            no_prefix_cache=resolved.no_prefix_cache,
        )
    if resolved.protocol == "pocketllm":
        return PocketLLMProtocol(
            base_url,
            drafter=resolved.drafter,
            no_prefix_cache=resolved.no_prefix_cache,
        )
    return OpenAIProtocol(
        base_url,
        model=resolved.alias or resolved.model,
        api=resolved.api,
        drafter=resolved.drafter,
        no_prefix_cache=resolved.no_prefix_cache,
    )
