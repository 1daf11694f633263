"""Answers of a server that neither stops by itself nor at stop texts: ended here instead.

PocketLLM's worker generates as many ids as it was asked for and returns no text. What it gave
after the first end is not part of the answer; the server's own counts stay as they are.
"""

from __future__ import annotations

import dataclasses

from qualify.engines.protocol import Sampling
from qualify.evals.fences import END_MARKERS
from qualify.prompts.tokens import Tokenizer
from qualify.records.schema import Record

NOTE = "the answer was ended here: this server generates to the full length"


def without_ends(sampling: Sampling) -> Sampling:
    """What can be sent to such a server."""
    return dataclasses.replace(sampling, ignore_eos=True, stop=())


def ended(record: Record, tokenizer: Tokenizer | None, stop: tuple[str, ...]) -> Record:
    """The record with the text up to the first end marker or stop text; as it is where the
    server gave text alone and no ids are known."""
    text = record.output_text
    if not text and record.output_ids is not None and tokenizer is not None:
        text = tokenizer.decode(record.output_ids)
    if not record.ok or text is None:
        return record
    places = [at for end in (*END_MARKERS, *stop) if (at := text.find(end)) >= 0]
    return dataclasses.replace(
        record,
        output_text=text[: min(places)] if places else text,
        finish_reason="stop" if places else record.finish_reason,
        notes=(*record.notes, NOTE),
    )
