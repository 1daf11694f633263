"""Where outputs of one prompt part: what a comparison finds, and what a margin is asked for."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from qualify.records.schema import Record


@dataclass(frozen=True)
class Parting:
    """Two outputs share `prefix` and go on with different tokens."""

    cell: str
    prompt_id: str
    index: int
    turn: int
    prefix: tuple[int, ...]

    @property
    def position(self) -> int:
        return len(self.prefix)


def first_difference(a: Sequence[Any], b: Sequence[Any]) -> int | None:
    """Index of the first differing element; the shorter length if one is a prefix."""
    if a == b:
        return None
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def prefix_sha256(ids: Sequence[int]) -> str:
    """Of the ids as little-endian uint32, as every hash over ids in a record."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()


def partings(records: Iterable[Record]) -> list[Parting]:
    """Every place where two greedy outputs of one prompt in one cell differ in a token.

    Each place once, in the order in which the records came. Outputs without token ids and
    places where one output simply ends have no two tokens to weigh up, and are left out.
    """
    outputs: dict[tuple[str, str, int], dict[tuple[int, ...], Record]] = {}
    for record in records:
        greedy = record.request.get("temperature") == 0
        if record.phase == "measured" and record.ok and record.output_ids and greedy:
            key = (record.cell, record.prompt_id, record.turn)
            outputs.setdefault(key, {}).setdefault(record.output_ids, record)
    found: dict[tuple[str, int, tuple[int, ...]], Parting] = {}
    for (cell, prompt_id, turn), seen in outputs.items():
        for a, b in combinations(seen, 2):
            at = first_difference(a, b)
            if at is not None and at < min(len(a), len(b)):
                index = seen[a].index
                place = Parting(cell, prompt_id, index, turn, a[:at])
                found.setdefault((prompt_id, turn, place.prefix), place)
    return list(found.values())
