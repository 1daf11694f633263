"""Whether the tokens that the server counted can be the ones that were streamed."""

from __future__ import annotations

from qualify.client.reply import TokenEvent
from qualify.client.tally import Tally

# More tokens an event, on average, than any known draft block or streaming interval that
# would still show less than one byte of text a token.
_TOKENS_AN_EVENT = 32
_THINK_MARK = "<think>"


def hidden_tokens(tally: Tally) -> str | None:
    """Why TTFT and TPOT are undefined because tokens were generated but not streamed; or None.

    Said in three cases, and never when the ids of all tokens were streamed: the server counts
    reasoning tokens but no reasoning came; it counts more tokens than there are bytes of
    output, and over 32 of them for each event; or the same holds of the first event alone.
    """
    n = tally.completion_tokens
    if n is None or not tally.events:
        return None
    ids = tally.ids()
    if ids is not None and len(ids) >= n:
        return None
    size = sum(_size(e) for e in tally.events)
    events = len(tally.events)
    shown = f"{n} tokens counted, {size} bytes in {events} events seen"
    said = tally.reasoning_tokens or 0
    reasoned = any(e.reasoning for e in tally.events)
    if said > 0 and not reasoned and _THINK_MARK not in tally.text():
        return f"reasoning not streamed: TTFT and TPOT undefined ({shown}, {said} of reasoning)"
    first = tally.events[0]
    first_tokens = first.tokens or 0
    at_first = first_tokens > max(_TOKENS_AN_EVENT, _size(first)) and first.ids is None
    if at_first or (size < n and n > _TOKENS_AN_EVENT * events):
        return f"reasoning not streamed: TTFT and TPOT undefined ({shown})"
    return None


def _size(event: TokenEvent) -> int:
    return len((event.text + event.reasoning + event.tool).encode("utf-8", "surrogatepass"))
