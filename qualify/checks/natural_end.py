"""Where an output would have ended by itself, had its end token not been ignored."""

from __future__ import annotations

from collections.abc import Sequence

from qualify.records.schema import Record


def natural_end(record: Record) -> int | None:
    """Tokens up to and with the first end token that was passed over; None where there is none
    or where the record cannot tell: it names no end tokens, or has no token ids."""
    ends = record.request.get("eos_ids")
    if record.output_ids is None or not isinstance(ends, list):
        return None
    return next((i for i, t in enumerate(record.output_ids[:-1], start=1) if t in ends), None)


def forced_past_end(counted: Sequence[Record]) -> int | None:
    """Requests whose output ran past its natural end under ignore_eos; None if not known.

    Known only where the record names the end tokens (request["eos_ids"]) and has token ids.
    """
    known = [
        r
        for r in counted
        if r.output_ids is not None and isinstance(r.request.get("eos_ids"), list)
    ]
    if not known:
        return None
    return sum(natural_end(r) is not None for r in known)
