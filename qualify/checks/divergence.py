"""Where two outputs part, and how close a call it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qualify.checks.margins import BY_TEXT, Margins
from qualify.records.partings import first_difference
from qualify.records.schema import Record

NEAR_TIE_MARGIN = 0.1  # nats between the two tokens, as the target-only launch scores them
_AROUND = 48  # characters of decoded text shown on each side


@dataclass(frozen=True)
class Divergence:
    """The first difference between two outputs of one prompt.

    position: index of the first differing token (or character where only text is known).
    margin: how far apart the log probabilities of the two tokens are, in nats, as a
    target-only launch scored them there; margin_above: more than so far, where it named only
    one of them; margin_unknown: why neither is known.
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
    margin_above: float | None = None
    margin_unknown: str | None = None

    @property
    def closeness(self) -> str:
        if self.margin is not None:
            return "near tie" if self.margin <= NEAR_TIE_MARGIN else "clear"
        known = self.margin_above is not None and self.margin_above > NEAR_TIE_MARGIN
        return "clear" if known else "unknown"

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "closeness": self.closeness}


def comparable(a: Record, b: Record) -> str | None:
    """ "ids" where both sides report token ids, "text" where both have text, else None."""
    if a.output_ids is not None and b.output_ids is not None:
        return "ids"
    if a.output_text is not None and b.output_text is not None:
        return "text"
    return None


def diverge(a: Record, b: Record, margins: Margins) -> Divergence | None:
    """The first difference of two comparable records; None where they are identical."""
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
    margin = margins.at(a, at, token_a, token_b) if how == "ids" else BY_TEXT
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
        margin.nats,
        margin.above,
        margin.unknown,
    )


def _around(text_a: str, text_b: str) -> tuple[str, str, str]:
    at = first_difference(text_a, text_b)
    if at is None:
        return text_a[-_AROUND:], "", ""
    return text_a[max(0, at - _AROUND) : at], text_a[at : at + _AROUND], text_b[at : at + _AROUND]
