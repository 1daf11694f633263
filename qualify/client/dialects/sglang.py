"""SGLang's native `/generate`: cumulative by default, or disjoint deltas.

Source: engine-protocols §1.4, §1.5. `meta_info.completion_tokens` is a running count in both
forms. Which form a stream has is decided when all of it is known: with ids, lengths equal to
the running count say cumulative and lengths equal to its growth say deltas; without ids, text
that always extends what came before says cumulative (the server's default), else deltas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qualify.client import values
from qualify.client.tally import Tally


@dataclass(frozen=True, slots=True)
class _Step:
    t_s: float
    text: str
    ids: tuple[int, ...] | None
    total: int | None


class SGLangFolder:
    """See `qualify.client.stream.fold_sglang`."""

    def __init__(self, cumulative: bool | None = None) -> None:
        self._cumulative = cumulative
        self._steps: list[_Step] = []

    def event(self, payload: Mapping[str, Any], t_s: float, tally: Tally) -> None:
        index = payload.get("index")
        if index not in (None, 0):
            tally.note("more than one answer arrived; only the first was read")
            return
        meta = values.mapping(payload.get("meta_info"))
        self._meta(meta, tally)
        self._steps.append(
            _Step(
                t_s,
                values.text(payload.get("text")),
                values.ids(payload.get("output_ids")),
                values.count(meta.get("completion_tokens")),
            )
        )

    def document(self, payload: Mapping[str, Any], t_s: float, tally: Tally) -> None:
        self._cumulative = True
        self.event(payload, t_s, tally)

    def finish(self, tally: Tally) -> None:
        steps = self._steps
        cumulative = _is_cumulative(steps) if self._cumulative is None else self._cumulative
        tally.extras["cumulative"] = cumulative
        text = ""
        ids: tuple[int, ...] = ()
        for step in steps:
            new_text, new_ids = step.text, step.ids
            if cumulative:
                new_text = _grown(text, step.text, tally)
                text = step.text
                if step.ids is not None:
                    new_ids, ids = step.ids[len(ids) :], step.ids
            tally.tokens(step.t_s, text=new_text, ids=new_ids, total=step.total)
        if cumulative and steps:
            tally.whole_text = text

    def _meta(self, meta: Mapping[str, Any], tally: Tally) -> None:
        if not meta:
            return
        tally.extras["meta_info"] = dict(meta)
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens"):
            value = values.count(meta.get(name))
            if value is not None:
                setattr(tally, name, value)
        reason = meta.get("finish_reason")
        if isinstance(reason, dict):
            tally.extras["finish_detail"] = dict(reason)
            message = reason.get("message")
            reason = reason.get("type")
        else:
            message = None
        if isinstance(reason, str) and reason:
            tally.finish_reason = reason
            if reason == "abort":
                tally.stream_error(f"aborted: {message or 'the server gave no reason'}")


def _grown(before: str, now: str, tally: Tally) -> str:
    """The part of a cumulative text that is new."""
    if now.startswith(before):
        return now[len(before) :]
    # For example a stop string that had been let through and is then cut off.
    tally.note("the server changed text that it had streamed; its last version stands")
    return now[_common(before, now) :]


def _common(a: str, b: str) -> int:
    """Length of the longest common prefix."""
    size = min(len(a), len(b))
    return next((i for i in range(size) if a[i] != b[i]), size)


def _is_cumulative(steps: list[_Step]) -> bool:
    before = 0
    for step in steps:
        if step.ids is not None and step.total is not None:
            size, grown = len(step.ids), step.total - before
            if before > 0 and size != grown and size == step.total:
                return True
            if before > 0 and size == grown and size != step.total:
                return False
            before = step.total
    longest = ""
    for step in steps:
        if not step.text.startswith(longest):
            return False
        longest = step.text
    return True
