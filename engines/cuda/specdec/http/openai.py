"""What the two OpenAI-style routes share: sampling, envelopes, closing events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from specdec.http.fields import stop_strings
from specdec.http.meta import sglext, usage
from specdec.http.openai_schema import OpenAIBody
from specdec.http.sse import event
from specdec.http.state import ServerState
from specdec.http.submit import Sampling
from specdec.job import Delta
from specdec.request import Finish


def sampling_of(body: OpenAIBody, max_new_tokens: int | None, top_logprobs: int | None) -> Sampling:
    """The sampling fields of either route."""
    return Sampling(
        max_new_tokens=max_new_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        stop=stop_strings(body.stop),
        stop_token_ids=body.stop_token_ids,
        ignore_eos=body.ignore_eos,
        skip_special_tokens=body.skip_special_tokens,
        no_stop_trim=body.no_stop_trim,
        seed=body.seed,
        top_logprobs=top_logprobs,
    )


def ending(finish: Finish | None) -> dict[str, Any]:
    """`finish_reason` and `matched_stop` of a choice."""
    return {
        "finish_reason": finish.kind if finish else None,
        "matched_stop": finish.matched if finish else None,
    }


class Envelope:
    """The outer object that all chunks or the one answer of a request share."""

    def __init__(self, state: ServerState, body: OpenAIBody, rid: str, kind: str) -> None:
        settings, options = state.settings, body.stream_options
        self._head = {
            "id": rid,
            "object": kind,
            "created": int(time.time()),
            "model": body.model or state.settings.model_name,
        }
        self._body = body
        self._cache_report = settings.enable_cache_report
        self.usage_each = bool(options and options.continuous_usage_stats)
        self.usage_last = settings.stream_response_default_include_usage or bool(
            options and options.include_usage
        )

    def wrap(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """The envelope around choices."""
        return {**self._head, "choices": choices, **more}

    def usage(self, deltas: list[Delta]) -> dict[str, Any]:
        """Usage over the latest delta of each prompt."""
        return usage(deltas, self._cache_report)

    def extension(self, last: Delta) -> dict[str, Any]:
        """`sglext` where it was asked for, as keywords for `wrap`."""
        fields = sglext(
            last,
            cached=bool(self._body.return_cached_tokens_details),
            spec=bool(self._body.return_spec_tokens_details),
        )
        return {} if fields is None else {"sglext": fields}

    def closing(self, deltas: list[Delta], keep_nulls: bool) -> Iterator[bytes]:
        """The events after the last choice: the extension, then usage, each where asked for."""
        extension = self.extension(deltas[-1])
        if extension:
            yield event(self.wrap([], **extension))
        if self.usage_last:
            total = self.usage(deltas)
            if not keep_nulls:
                total = {name: value for name, value in total.items() if value is not None}
            yield event(self.wrap([], usage=total))
