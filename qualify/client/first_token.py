"""Has a token come yet? Asked only while a stream is silent, to know which limit applies.

Headers, comments, role-only events and progress reports may come at once while a prompt of
a million tokens is still being read in; the budget for the first token runs until a token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from qualify.client.reply import Arrival
from qualify.client.sse import SseError, SseEvent, SseParser

_TEXT_KEYS = ("text", "content", "reasoning_content", "reasoning", "tool_calls", "function_call")
_ID_KEYS = ("output_ids", "tokens", "token_ids")


class FirstTokenWatch:
    """Reads each arrival at most once, and none after the first sign of a token."""

    def __init__(self) -> None:
        self._parser = SseParser()
        self._next = 0
        self._seen = False

    def seen(self, arrivals: Sequence[Arrival]) -> bool:
        """Whether `arrivals` (the same growing sequence at each call) hold a token.

        Anything that is not a recognisable empty event counts as one: an error, a JSON
        document, something unreadable. The server is then past waiting.
        """
        while not self._seen and self._next < len(arrivals):
            arrival = arrivals[self._next]
            if self._next == 0 and arrival.data.lstrip()[:1] in (b"{", b"["):
                self._seen = True
            self._next += 1
            try:
                events = self._parser.feed(arrival.data, arrival.t_s)
            except SseError:
                self._seen = True
                break
            self._seen = self._seen or any(_carries(e) for e in events)
        return self._seen


def _carries(event: SseEvent) -> bool:
    if not event.data.strip():
        return False
    try:
        payload = json.loads(event.data)
    except (ValueError, RecursionError):
        return True
    if not isinstance(payload, dict) or payload.get("error") or payload.get("stop") is True:
        return True
    if "prompt_progress" in payload:
        return False
    parts: list[Mapping[str, Any]] = [payload]
    for choice in payload.get("choices") or ():
        if isinstance(choice, dict):
            parts += [choice, *(v for v in (choice.get("delta"),) if isinstance(v, dict))]
            if choice.get("finish_reason"):
                return True
    return any(part.get(key) for part in parts for key in (*_TEXT_KEYS, *_ID_KEYS))
