"""How a request may be written for an OpenAI-style server, richest form first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from qualify.client.reply import Arrival, RawReply, Reply
from qualify.client.stream import fold_openai
from qualify.engines.control import Answer
from qualify.engines.protocol import Sampling

Api = Literal["completions", "chat"]
PROBE_IDS = (100, 200, 300)
PROBE_TEXT = "One, two"
PROBE_TIMEOUT_S = 900.0  # a cold server may compile for minutes at its first request


@dataclass(frozen=True)
class Form:
    """How a request may be written for this server."""

    token_ids: bool
    ignore_eos: bool
    return_ids: bool


FORMS = (
    Form(True, True, True),
    Form(True, True, False),
    Form(True, False, False),
    Form(False, True, True),
    Form(False, True, False),
    Form(False, False, False),
)


def request_body(
    form: Form, api: Api, model: str | None, given: Any, sampling: Sampling
) -> dict[str, Any]:
    """A streamed request that asks for usage; `given` is a list of ids or a text.

    Keys that OpenAI does not have stand in it only where the form, or the campaign's own
    sampling, asks for them: a strict server refuses every other.
    """
    body: dict[str, Any] = {
        "model": model or "default",
        "max_tokens": sampling.output_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if api == "completions":
        body["prompt"] = given
    else:
        body["messages"] = [{"role": "user", "content": given}]
    if sampling.top_k is not None:
        body["top_k"] = sampling.top_k
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if form.ignore_eos:
        body["ignore_eos"] = sampling.ignore_eos
    if form.return_ids:
        body["return_token_ids"] = True
    return body


def as_reply(answer: Answer) -> Reply:
    """A whole answer, read without times, folded as a stream would be."""
    data = answer.text.encode()
    streamed = data.lstrip().startswith((b"data:", b":"))
    kind = "text/event-stream" if streamed else "application/json"
    return fold_openai(
        RawReply(
            status=answer.status,
            headers=(("content-type", kind),),
            arrivals=(Arrival(0.0, data),),
            end="complete",
            detail=None,
            t_sent=0.0,
            t_headers_s=0.0,
            t_end_s=0.0,
            started_at=datetime.now(UTC).isoformat(),
        )
    )
