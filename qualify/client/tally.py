"""What has been seen of one answer so far: token events, counts, its end, its faults."""

from __future__ import annotations

import json
from typing import Any

from qualify.client.reply import TokenEvent
from qualify.client.values import joined
from qualify.records.schema import Usage


class Tally:
    """Accumulates deltas. Text is kept in pieces, so that long answers stay linear."""

    def __init__(self) -> None:
        self.events: list[TokenEvent] = []
        self.done = False
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.malformed: str | None = None
        self.torn: str | None = None  # an unfinished event at the very end
        self.whole_text: str | None = None  # where the server repeats all of it, its last word
        self.timing_undefined: str | None = None
        self.closing_usage = False  # a count came in an event of its own, after the tokens
        self.notes: list[str] = []
        self.extras: dict[str, Any] = {}
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self._running: int | None = 0  # tokens up to the last event; None while unknown

    def tokens(
        self,
        t_s: float,
        *,
        text: str = "",
        reasoning: str = "",
        tool: str = "",
        ids: tuple[int, ...] | None = None,
        total: int | None = None,
        entries: int | None = None,
    ) -> None:
        """One event's share of the answer, as a delta; kept only when it carried tokens.

        ids: its token ids. total: the server's running count up to and with this event.
        entries: how many logprob entries it had. The first of the three that is known gives
        the event's tokens; a running count does so only from a point where the count before
        the event is known too (the start, or the last event that had one).
        """
        carried: int | None = None
        if ids:
            carried = len(ids)
        elif total is not None and self._running is not None and total >= self._running:
            carried = total - self._running
        elif entries:
            carried = entries
        if total is not None and self._running is not None and total < self._running:
            self.note(f"the running token count fell from {self._running} to {total}")
        if not (text or reasoning or tool or carried):
            return
        self.events.append(TokenEvent(t_s, text, reasoning, tool, carried, ids or None))
        if total is not None:
            self._running = total
        elif carried is None or self._running is None:
            self._running = None
        else:
            self._running += carried

    def stream_error(self, error: Any) -> None:
        """The first error that the server put into the stream, as a sentence."""
        if self.error is None:
            self.error = _sentence(error)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def usage(self) -> Usage:
        return Usage(
            self.prompt_tokens, self.completion_tokens, self.cached_tokens, self.reasoning_tokens
        )

    def text(self) -> str:
        if self.whole_text is not None:
            return joined([self.whole_text])
        return joined([e.text for e in self.events])

    def reasoning(self) -> str:
        return joined([e.reasoning for e in self.events])

    def ids(self) -> tuple[int, ...] | None:
        """All output ids, when every event that carried tokens carried their ids."""
        if not self.events or any(e.ids is None and e.tokens != 0 for e in self.events):
            return None
        return tuple(i for e in self.events for i in e.ids or ())


def _sentence(error: Any) -> str:
    if isinstance(error, str):
        return error[:500]
    if isinstance(error, dict):
        message = error.get("message")
        code = error.get("code")
        if isinstance(message, str):
            return (f"{code}: {message}" if code is not None else message)[:500]
    return json.dumps(error, ensure_ascii=False)[:500]
