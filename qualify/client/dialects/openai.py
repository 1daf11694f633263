"""`/v1/completions` and `/v1/chat/completions`, as OpenAI, SGLang, vLLM and llama.cpp speak it.

Source: engine-protocols §1.6, §1.7, §2.1, §2.2. Only choice 0 is read: one answer is asked
for. `usage` is a running or a final total, so the last one stands and none is ever added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qualify.client import values
from qualify.client.tally import Tally

_KEPT = ("usage", "timings", "metrics", "sglext", "meta_info", "system_fingerprint", "model", "id")


class OpenAIFolder:
    """See `qualify.client.stream.fold_openai`."""

    def __init__(self, api: str | None = None) -> None:
        self._api = api
        self._tools: dict[int, dict[str, str]] = {}

    def event(self, payload: Mapping[str, Any], t_s: float, tally: Tally) -> None:
        self._common(payload, tally)
        choice = self._choice(payload, tally)
        if choice is None:
            if isinstance(payload.get("usage"), dict):
                tally.closing_usage = True
            return
        tally.closing_usage = False
        body: Mapping[str, Any] = choice
        if isinstance(choice.get("delta"), dict):
            body = choice["delta"]
            self._check_api("chat", tally)
        elif isinstance(choice.get("message"), dict):
            # The whole message again at the end of some streams: only news if nothing came.
            body = {} if tally.events else choice["message"]
        elif "text" in choice:
            self._check_api("completions", tally)
        self._deltas(payload, choice, body, t_s, tally)

    def document(self, payload: Mapping[str, Any], t_s: float, tally: Tally) -> None:
        self._common(payload, tally)
        choice = self._choice(payload, tally)
        if choice is not None:
            message = choice.get("message")
            body = message if isinstance(message, dict) else choice
            self._deltas(payload, choice, body, t_s, tally)

    def finish(self, tally: Tally) -> None:
        if self._tools:
            tally.extras["tool_calls"] = [self._tools[i] for i in sorted(self._tools)]

    def _check_api(self, found: str, tally: Tally) -> None:
        if self._api is not None and self._api != found:
            tally.note(f"asked the {self._api} API, answered in the shape of {found}")

    def _common(self, payload: Mapping[str, Any], tally: Tally) -> None:
        for key in _KEPT:
            if payload.get(key) is not None:
                tally.extras[key] = payload[key]
        usage = payload.get("usage")
        if isinstance(usage, dict):
            _usage(usage, tally)
        cached = values.count(values.mapping(payload.get("timings")).get("cache_n"))
        if cached is not None and tally.cached_tokens is None:
            tally.cached_tokens = cached

    def _choice(self, payload: Mapping[str, Any], tally: Tally) -> Mapping[str, Any] | None:
        choices = payload.get("choices")
        if not isinstance(choices, list):
            return None
        first: Mapping[str, Any] | None = None
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            if choice.get("index") in (None, 0):
                first = first or choice
            else:
                tally.note("more than one choice arrived; only choice 0 was read")
        return first

    def _deltas(
        self,
        payload: Mapping[str, Any],
        choice: Mapping[str, Any],
        body: Mapping[str, Any],
        t_s: float,
        tally: Tally,
    ) -> None:
        text = values.text(body.get("content")) or values.text(body.get("text"))
        tally.tokens(
            t_s,
            text=text or values.text(body.get("refusal")),
            reasoning=_reasoning(body),
            tool=self._tool(body),
            ids=values.ids(choice.get("token_ids")) or _logprob_ids(choice.get("logprobs")),
            total=_running(payload),
            entries=_logprob_entries(choice.get("logprobs")),
        )
        if isinstance(choice.get("meta_info"), dict):
            tally.extras["meta_info"] = choice["meta_info"]
        reason = choice.get("finish_reason")
        if isinstance(reason, dict):
            tally.extras["finish_detail"] = reason
            reason = reason.get("type")
        if isinstance(reason, str) and reason:
            tally.finish_reason = reason
            if reason in ("abort", "error"):
                tally.stream_error(f"the server ended the request with finish reason {reason}")

    def _tool(self, body: Mapping[str, Any]) -> str:
        """The generated text of tool calls, and the calls themselves put together."""
        calls = body.get("tool_calls")
        if not isinstance(calls, list):
            calls = []
        legacy = body.get("function_call")
        if isinstance(legacy, dict):
            calls = [*calls, {"index": 0, "function": legacy}]
        pieces = []
        for position, call in enumerate(calls):
            if not isinstance(call, dict):
                continue
            index = values.count(call.get("index"))
            kept = self._tools.setdefault(
                position if index is None else index, {"id": "", "name": "", "arguments": ""}
            )
            function = values.mapping(call.get("function"))
            if not kept["id"]:
                kept["id"] = values.text(call.get("id"))
            for key in ("name", "arguments"):
                piece = values.text(function.get(key))
                kept[key] += piece
                pieces.append(piece)
        return "".join(pieces)


def _reasoning(body: Mapping[str, Any]) -> str:
    """Both spellings; a server that sends both for its clients' sake says it once."""
    one = values.text(body.get("reasoning_content"))
    other = values.text(body.get("reasoning"))
    return one if one == other else one + other


def _running(payload: Mapping[str, Any]) -> int | None:
    total = values.count(values.mapping(payload.get("usage")).get("completion_tokens"))
    if total is not None:
        return total
    return values.count(values.mapping(payload.get("timings")).get("predicted_n"))


def _logprob_entries(logprobs: Any) -> int | None:
    shape = values.mapping(logprobs)
    for key in ("content", "tokens"):
        if isinstance(shape.get(key), list):
            return len(shape[key])
    return None


def _logprob_ids(logprobs: Any) -> tuple[int, ...] | None:
    """llama.cpp puts the id of each token into its logprob entry."""
    content = values.mapping(logprobs).get("content")
    if not isinstance(content, list):
        return None
    return values.ids([values.mapping(entry).get("id") for entry in content])


def _usage(usage: Mapping[str, Any], tally: Tally) -> None:
    prompt = values.count(usage.get("prompt_tokens"))
    completion = values.count(usage.get("completion_tokens"))
    if prompt is not None:
        tally.prompt_tokens = prompt
    if completion is not None:
        if tally.completion_tokens is not None and completion < tally.completion_tokens:
            tally.note(f"usage fell from {tally.completion_tokens} to {completion} tokens")
        tally.completion_tokens = completion
    cached = values.count(values.mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
    if cached is not None:
        tally.cached_tokens = cached
    reasoning = values.count(
        values.mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")
    )
    if reasoning is None:
        reasoning = values.count(usage.get("reasoning_tokens"))
    if reasoning is not None:
        tally.reasoning_tokens = reasoning
