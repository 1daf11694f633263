"""Prompts cut out of prompts that were built, by their token ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from qualify.errors import CellError
from qualify.prompts.exact import ids_sha256
from qualify.prompts.prompt import Prompt
from qualify.run.probes.probing import Probing


def of_ids(like: Prompt, name: str, ids: Sequence[int], turn: int = 0) -> Prompt:
    """A prompt of exactly `ids`. It has no text: cut ids need not be the ids of any text."""
    return dataclasses.replace(
        like,
        id=f"{like.id.rsplit('/', 1)[0]}/{name}",
        ids=tuple(ids),
        text="",
        text_exact=False,
        sha256=ids_sha256(tuple(ids)),
        turn=turn,
        shared_prefix=0,
    )


def needs_ids(probing: Probing) -> None:
    """Raises CellError for a server that takes text only."""
    if not probing.attempt.able.token_ids_in:
        raise CellError(
            "This server takes text only, and a prompt that shares an exact number of tokens"
            " with another can be sent as token ids alone.",
            "Measure it through its native protocol.",
        )
