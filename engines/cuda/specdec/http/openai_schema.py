"""What the OpenAI-style routes accept; nothing is silently dropped."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

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
    StreamOptions,
    Strict,
    Temperature,
    Text,
    TokenCount,
    TokenIds,
    TopK,
    TopLogprobs,
    TopP,
)


class OpenAIBody(Strict):
    """What `/v1/completions` and `/v1/chat/completions` share."""

    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {
        "frequency_penalty": ZERO,
        "presence_penalty": ZERO,
        "repetition_penalty": ONE,
        "min_tokens": ZERO,
        "n": ONE,
        "logit_bias": (None, {}),
        "priority": ZERO,
        "json_schema": NONE,
        "regex": NONE,
        "ebnf": NONE,
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
    cache_salt: CacheKey | None = None
    extra_key: CacheKey | None = None
    priority: int | None = None
    json_schema: str | dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    response_format: dict[str, Any] | None = None


class CompletionBody(OpenAIBody):
    """`POST /v1/completions`."""

    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {
        **OpenAIBody.NEUTRAL,
        "best_of": ONE,
        "echo": OFF,
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

    @model_validator(mode="after")
    def _says_something(self) -> Message:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"A message of role '{self.role}' needs a 'content'.")
        return self


class ChatBody(OpenAIBody):
    """`POST /v1/chat/completions`."""

    NEUTRAL: ClassVar[dict[str, tuple[Any, ...]]] = {
        **OpenAIBody.NEUTRAL,
        "tools": (None, []),
        "tool_choice": (None, "none", "auto"),
        "parallel_tool_calls": (None, True, False),
        "reasoning_effort": NONE,
        "continue_final_message": OFF,
        "return_hidden_states": OFF,
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
