"""Where two outputs part, and how close a call it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qualify.records.schema import Record

NEAR_TIE_MARGIN = 0.1  # nats between the two tokens, as the target-only launch scores them
_AROUND = 48  # characters of decoded text shown on each side


@dataclass(frozen=True)
class Divergence:
    """The first difference between two outputs of one prompt.

    position: index of the first differing token (or character where only text is known).
    margin: log probability of the baseline's token minus the other's, in nats, as the
    target-only launch scored them there; None when it recorded no scores.
    closeness: "near tie", "clear" or "unknown". It never turns a failure into a pass.
    """

    prompt: str
    launch_a: str
    launch_b: str
    compared: str  # ids | text
    position: int
    token_a: int | str | None
    token_b: int | str | None
    shared_text: str
    text_a: str
    text_b: str
    margin: float | None

    @property
    def closeness(self) -> str:
        if self.margin is None:
            return "unknown"
        return "near tie" if abs(self.margin) <= NEAR_TIE_MARGIN else "clear"

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "closeness": self.closeness}


def comparable(a: Record, b: Record) -> str | None:
    """ "ids" where both sides report token ids, "text" where both have text, else None."""
    if a.output_ids is not None and b.output_ids is not None:
        return "ids"
    if a.output_text is not None and b.output_text is not None:
        return "text"
    return None


def first_difference(a: Sequence[Any], b: Sequence[Any]) -> int | None:
    """Index of the first differing element; the shorter length if one is a prefix."""
    if a == b:
        return None
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def diverge(a: Record, b: Record, scored_by: Record | None) -> Divergence | None:
    """The first difference of two comparable records; None where they are identical.

    scored_by is the target-only record of the same prompt, for the margin.
    """
    how = comparable(a, b)
    if how == "ids":
        seq_a: Sequence[Any] = a.output_ids or ()
        seq_b: Sequence[Any] = b.output_ids or ()
    else:
        seq_a, seq_b = a.output_text or "", b.output_text or ""
    at = first_difference(seq_a, seq_b)
    if at is None:
        return None
    token_a = seq_a[at] if at < len(seq_a) else None
    token_b = seq_b[at] if at < len(seq_b) else None
    shared, text_a, text_b = _around(a.output_text or "", b.output_text or "")
    margin = margin_at(scored_by, at, token_a, token_b) if scored_by and how == "ids" else None
    return Divergence(
        a.prompt_id,
        a.launch,
        b.launch,
        how or "text",
        at,
        token_a,
        token_b,
        shared,
        text_a,
        text_b,
        margin,
    )


def margin_at(scored: Record, position: int, one: Any, other: Any) -> float | None:
    """|log p(one) - log p(other)| at an output position, from the record's own scores.

    Scores stand in extras["top_logprobs"]: for each output position a list of
    [token id, log probability]. None when the record has none there, or when either token
    is outside the list (its probability is then not known).
    """
    table = scored.extras.get("top_logprobs")
    if not isinstance(table, list) or not 0 <= position < len(table):
        return None
    row = table[position]
    if not isinstance(row, list):
        return None
    scores = {
        entry[0]: entry[1]
        for entry in row
        if isinstance(entry, list | tuple) and len(entry) >= 2 and isinstance(entry[1], int | float)
    }
    if one not in scores or other not in scores:
        return None
    return float(abs(scores[one] - scores[other]))


def _around(text_a: str, text_b: str) -> tuple[str, str, str]:
    at = first_difference(text_a, text_b)
    if at is None:
        return text_a[-_AROUND:], "", ""
    return text_a[max(0, at - _AROUND) : at], text_a[at : at + _AROUND], text_b[at : at + _AROUND]
