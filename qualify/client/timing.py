"""Reply -> Timing: what the times of one streamed request say, and what they cannot say.

Rules (convention "first-event"):
- A token event is one that carried text, reasoning, a tool call, ids or a higher count. The
  usage event, `[DONE]`, comments and role-only events are none, so TPOT ends at the last token.
- TTFT is the time of the first token event. first_visible_s is that of the first one with
  text or a tool call: later than TTFT where a model reasons first.
- TPOT = (t_last - t_first) / (N - n_first). N is the server's count of all output tokens and
  n_first what came with the first token event: its ids, or a running count. Where the server
  says neither, n_first is known in one case only: as many token events as tokens, so that each
  carried exactly one. Otherwise TPOT is null and a note says why; the common form
  (t_last - t_first) / (N - 1) needs no n_first and stands beside it under its own name.
- One token, or all tokens at one moment: no decode interval was seen, both forms are null.
- Tokens that were not streamed (`Reply.timing_undefined`): TTFT and TPOT are null.
- max_gap_ms is the longest time between two token events. It is a gap between events, never
  called a time between tokens.
"""

from __future__ import annotations

from itertools import pairwise

from qualify.client.reply import Reply, TokenEvent
from qualify.records.schema import Timing

CONVENTION = "first-event"


def timing_of(reply: Reply) -> tuple[Timing, tuple[str, ...]]:
    """Times of one reply, with a sentence for each figure that had to stay undefined.

    Times are seconds since the request was sent. Failed replies are timed too, as far as
    they went, for diagnosis; only `failure` says whether they count.
    """
    notes: list[str] = []
    events = reply.events
    n = reply.usage.completion_tokens
    times = [e.t_s for e in events]
    t_first = times[0] if times else None
    t_last = times[-1] if times else None
    n_first = _first_count(events, n)
    defined = reply.timing_undefined is None
    decode_s = t_last - t_first if t_first is not None and t_last is not None else None
    tpot_ms = common_ms = None
    if defined and decode_s is not None and n is not None and n > 1:
        if decode_s <= 0:
            notes.append(f"{n} tokens came at one moment: TPOT undefined")
        else:
            common_ms = 1000.0 * decode_s / (n - 1)
            if n_first is None:
                notes.append(
                    f"{n} tokens in {len(events)} events and the server does not say how many "
                    "came first: TPOT undefined, only its common form is given"
                )
            elif n_first < n:
                tpot_ms = 1000.0 * decode_s / (n - n_first)
            else:
                notes.append(f"the first event carried all {n} tokens: TPOT undefined")
    timing = Timing(
        convention=CONVENTION,
        ttft_s=t_first if defined else None,
        t_first_s=t_first,
        t_last_s=t_last,
        t_end_s=reply.t_end_s,
        n_first=n_first,
        tpot_ms=tpot_ms,
        tpot_common_ms=common_ms,
        max_gap_ms=_max_gap_ms(times),
        first_visible_s=next((e.t_s for e in events if e.text or e.tool), None),
        events=tuple((e.t_s, e.tokens) for e in events),
    )
    return timing, tuple(notes)


def _first_count(events: tuple[TokenEvent, ...], n: int | None) -> int | None:
    """n_first, known or proven; see the module's rules."""
    if not events:
        return None
    said = events[0].tokens
    if said:
        return said
    if n is not None and len(events) == n and all(e.tokens in (None, 1) for e in events):
        return 1
    return None


def _max_gap_ms(times: list[float]) -> float | None:
    if len(times) < 2:
        return None
    return 1000.0 * max(b - a for a, b in pairwise(times))
