"""What `/generate` accepts: SGLang's names; nothing is silently dropped."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from specdec.http.fields import (
    MAX_BATCH,
    NONE,
    OFF,
    ONE,
    ZERO,
    CacheKey,
    MinP,
    RequestId,
    Seed,
    Stop,
    StopTokenIds,
    Strict,
    Temperature,
    Text,
    TokenCount,
    TokenIds,
    TopK,
    TopLogprobs,
    TopP,
)


class NativeSampling(Strict):
    """`sampling_params` of `/generate`."""

    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {
        "frequency_penalty": ZERO,
        "presence_penalty": ZERO,
        "repetition_penalty": ONE,
        "min_new_tokens": ZERO,
        "n": ONE,
        "stream_interval": ONE,
        "stop_regex": (None, []),
        "json_schema": NONE,
        "regex": NONE,
        "ebnf": NONE,
        "structural_tag": NONE,
        "logit_bias": (None, {}),
        "custom_params": (None, {}),
    }
    max_new_tokens: TokenCount | None = 128
    temperature: Temperature | None = 1.0
    top_p: TopP | None = 1.0
    top_k: TopK | None = -1
    min_p: MinP | None = 0.0
    stop: Stop = None
    stop_token_ids: StopTokenIds = None
    ignore_eos: bool | None = False
    skip_special_tokens: bool | None = True
    spaces_between_special_tokens: bool | None = True
    no_stop_trim: bool | None = False
    sampling_seed: Seed | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    min_new_tokens: int | None = None
    n: int | None = None
    stream_interval: int | None = None
    stop_regex: str | Annotated[list[str], Field(fail_fast=True)] | None = None
    json_schema: str | dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    logit_bias: dict[str, float] | None = None
    custom_params: dict[str, Any] | None = None


class GenerateBody(Strict):
    """`POST /generate`."""

    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {
        "input_embeds": NONE,
        "image_data": (None, []),
        "audio_data": (None, []),
        "video_data": (None, []),
        "token_ids_logprob": (None, []),
        "logprob_start_len": (None, -1),
        "return_hidden_states": OFF,
        "priority": ZERO,
        "session_params": (None, {}),
        "lora_path": NONE,
        "custom_labels": (None, {}),
        "max_thinking_tokens": NONE,
    }
    text: (
        Text
        | Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=MAX_BATCH)]
        | None
    ) = None
    input_ids: (
        TokenIds
        | Annotated[list[TokenIds], Field(fail_fast=True, min_length=1, max_length=MAX_BATCH)]
        | None
    ) = None
    sampling_params: (
        NativeSampling
        | Annotated[list[NativeSampling], Field(fail_fast=True, min_length=1, max_length=MAX_BATCH)]
        | None
    ) = None
    stream: bool | None = False
    rid: (
        RequestId
        | Annotated[list[RequestId], Field(fail_fast=True, min_length=1, max_length=MAX_BATCH)]
        | None
    ) = None
    return_logprob: bool | None = False
    return_text_in_logprobs: bool | None = False
    return_prompt_token_ids: bool | None = False
    log_metrics: bool | None = True
    no_logs: bool | None = False
    custom_labels: dict[str, str] | None = None
    input_embeds: Any = None
    image_data: Any = None
    audio_data: Any = None
    video_data: Any = None
    top_logprobs_num: TopLogprobs | None = 0
    token_ids_logprob: Annotated[list[int], Field(fail_fast=True)] | None = None
    logprob_start_len: int | None = None
    return_hidden_states: bool | None = None
    extra_key: CacheKey | None = None
    cache_salt: CacheKey | None = None
    priority: int | None = None
    session_params: dict[str, Any] | None = None
    lora_path: str | None = None
    max_thinking_tokens: int | None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> GenerateBody:
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("Send exactly one of 'text' and 'input_ids'.")
        return self
