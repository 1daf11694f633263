"""What each generating route accepts. SGLang's and OpenAI's names; nothing is silently dropped."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from specdec.http.fields import (
    MinP,
    RequestId,
    Seed,
    Stop,
    StopTokenIds,
    StreamOptions,
    Strict,
    Temperature,
    Text,
    TokenCount,
    TokenIds,
    TopK,
    TopP,
)

_NONE = (None,)
_OFF = (None, False)
_ZERO = (None, 0)
_ONE = (None, 1)
MAX_BATCH = 512
TopLogprobs = Annotated[int, Field(ge=0, le=20)]


class NativeSampling(Strict):
    """`sampling_params` of `/generate`."""

    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {
        "frequency_penalty": _ZERO,
        "presence_penalty": _ZERO,
        "repetition_penalty": _ONE,
        "min_new_tokens": _ZERO,
        "n": _ONE,
        "stream_interval": _ONE,
        "stop_regex": (None, []),
        "json_schema": _NONE,
        "regex": _NONE,
        "ebnf": _NONE,
        "structural_tag": _NONE,
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
        "input_embeds": _NONE,
        "image_data": (None, []),
        "audio_data": (None, []),
        "video_data": (None, []),
        "token_ids_logprob": (None, []),
        "logprob_start_len": (None, -1),
        "return_hidden_states": _OFF,
        "extra_key": _NONE,
        "cache_salt": _NONE,
        "priority": _ZERO,
        "session_params": (None, {}),
        "lora_path": _NONE,
        "custom_labels": (None, {}),
        "max_thinking_tokens": _NONE,
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
    extra_key: str | None = None
    cache_salt: str | None = None
    priority: int | None = None
    session_params: dict[str, Any] | None = None
    lora_path: str | None = None
    max_thinking_tokens: int | None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> GenerateBody:
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("Send exactly one of 'text' and 'input_ids'.")
        return self


class OpenAIBody(Strict):
    """What `/v1/completions` and `/v1/chat/completions` share."""

    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {
        "frequency_penalty": _ZERO,
        "presence_penalty": _ZERO,
        "repetition_penalty": _ONE,
        "min_tokens": _ZERO,
        "n": _ONE,
        "logit_bias": (None, {}),
        "cache_salt": _NONE,
        "extra_key": _NONE,
        "priority": _ZERO,
        "json_schema": _NONE,
        "regex": _NONE,
        "ebnf": _NONE,
        "response_format": (None, {"type": "text"}),
    }
    model: str | None = None
    max_tokens: TokenCount | None = None
    temperature: Temperature | None = 1.0
    top_p: TopP | None = 1.0
    top_k: TopK | None = -1
    min_p: MinP | None = 0.0
    seed: Seed | None = None
    stop: Stop = None
    stop_token_ids: StopTokenIds = None
    ignore_eos: bool | None = False
    skip_special_tokens: bool | None = True
    no_stop_trim: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    rid: RequestId | None = None
    user: str | None = None
    return_token_ids: bool | None = False
    return_cached_tokens_details: bool | None = False
    return_spec_tokens_details: bool | None = False
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    n: int | None = None
    logit_bias: dict[str, float] | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    priority: int | None = None
    json_schema: str | dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    response_format: dict[str, Any] | None = None


class CompletionBody(OpenAIBody):
    """`POST /v1/completions`."""

    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {
        **OpenAIBody.NEUTRAL,
        "best_of": _ONE,
        "echo": _OFF,
        "suffix": (None, ""),
    }
    prompt: (
        Text
        | TokenIds
        | Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=MAX_BATCH)]
        | Annotated[list[TokenIds], Field(fail_fast=True, min_length=1, max_length=MAX_BATCH)]
    )
    logprobs: TopLogprobs | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None


class TextPart(Strict):
    """One part of a message's content; this engine reads text alone."""

    type: Literal["text"]
    text: str


class Message(Strict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class ChatBody(OpenAIBody):
    """`POST /v1/chat/completions`."""

    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {
        **OpenAIBody.NEUTRAL,
        "tools": (None, []),
        "tool_choice": (None, "none", "auto"),
        "parallel_tool_calls": (None, True, False),
        "reasoning_effort": _NONE,
        "continue_final_message": _OFF,
        "return_hidden_states": _OFF,
    }
    messages: (
        Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=4096)] | None
    ) = None
    input_ids: TokenIds | None = None
    max_completion_tokens: TokenCount | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = True
    continue_final_message: bool | None = False
    return_meta_info: bool | None = False
    separate_reasoning: bool | None = True
    stream_reasoning: bool | None = True
    logprobs: bool | None = False
    top_logprobs: TopLogprobs | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    return_hidden_states: bool | None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> ChatBody:
        if (self.messages is None) == (self.input_ids is None):
            raise ValueError("Send exactly one of 'messages' and 'input_ids'.")
        return self


class TokenizeBody(Strict):
    """`POST /tokenize`: a prompt, or a conversation through the chat template."""

    model: str | None = None
    prompt: str | Annotated[list[str], Field(fail_fast=True)] | None = None
    text: str | None = None
    messages: (
        Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=4096)] | None
    ) = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = True
    add_special_tokens: bool | None = True

    @model_validator(mode="after")
    def _one_prompt(self) -> TokenizeBody:
        if sum(value is not None for value in (self.prompt, self.text, self.messages)) != 1:
            raise ValueError("Send exactly one of 'prompt', 'text' and 'messages'.")
        return self


class DetokenizeBody(Strict):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: (
        Annotated[list[int], Field(fail_fast=True)]
        | Annotated[list[list[int]], Field(fail_fast=True)]
    )
    skip_special_tokens: bool | None = True


class AbortBody(Strict):
    """`POST /abort_request`."""

    rid: str | None = None
    abort_all: bool | None = False
    abort_message: str | None = None
