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

        total: the server's running count up to and with this event; it gives the event's
        tokens from a point where the count before the event is known too (the start, or the
        last event that had one). Else its ids do, else entries, its number of logprobs. The
        count goes first because ids can be fewer: llama.cpp holds back the first tokens of a
        character and then names the last one only, and names id 0 while it reads the prompt.
        """
        carried: int | None = None
        if total is not None and self._running is not None and total >= self._running:
            carried = total - self._running
        elif ids:
            carried = len(ids)
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
        """All output ids, or None unless the server named every token that it counted.

        The token that ended generation may be counted without being named.
        """
        visible = (e for e in self.events if e.text or e.reasoning or e.tool)
        if not self.events or any(e.ids is None for e in visible):
            return None
        named = tuple(i for e in self.events for i in e.ids or ())
        if not named:
            return None
        n = self.completion_tokens
        enough = (n, n - 1) if n is not None and self.finish_reason == "stop" else (n,)
        if n is not None and len(named) not in enough:
            self.note(f"the server named {len(named)} ids for {n} tokens; they are left out")
            return None
        return named


def _sentence(error: Any) -> str:
    if isinstance(error, str):
        return error[:500]
    if isinstance(error, dict):
        message = error.get("message")
        code = error.get("code")
        if isinstance(message, str):
            return (f"{code}: {message}" if code is not None else message)[:500]
    return json.dumps(error, ensure_ascii=False)[:500]
