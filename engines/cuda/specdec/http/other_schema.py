"""What the token and control routes accept."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from specdec.http.fields import Strict
from specdec.http.openai_schema import Message


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
