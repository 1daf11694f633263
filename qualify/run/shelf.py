"""Prompts, built once a set and handed to every launch that sends them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from qualify.plan import CellPlan
from qualify.prompts.prompt import Prompt, PromptSpec

Build = Callable[[PromptSpec], list[Prompt]]

PROBE_TOKENS = 256  # engines cache whole blocks; the largest in common use holds 128 tokens


class Shelf:
    """Keeps what was built: the same spec gives the same prompts in every launch (rule 7)."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._sets: dict[PromptSpec, list[Prompt]] = {}

    def get(self, spec: PromptSpec) -> list[Prompt]:
        found = self._sets.get(spec)
        if found is None:
            found = self._sets[spec] = self._build(spec)
        return found

    def probe(self, cell: CellPlan, *, most: int | None) -> Prompt:
        """One prompt of its own stream, for planting in the cache."""
        tokens = PROBE_TOKENS if most is None else max(1, min(PROBE_TOKENS, most))
        spec = dataclasses.replace(
            cell.prompts,
            stream="probe",
            tokens=tokens,
            count=1,
            turns=1,
            template=False,
            thinking=None,
        )
        return self.get(spec)[0]


def sessions(prompts: list[Prompt]) -> list[list[Prompt]]:
    """Prompts by session, each in the order of its turns."""
    grouped: dict[int, list[Prompt]] = {}
    for prompt in prompts:
        grouped.setdefault(prompt.index, []).append(prompt)
    return [sorted(turns, key=lambda p: p.turn) for _, turns in sorted(grouped.items())]
