"""How close a call a difference was: what the target-only launch said there (rule 8).

The probe `margins` asked it for the likeliest tokens after the prompt and the common prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qualify.records.partings import prefix_sha256
from qualify.records.run import Run
from qualify.records.schema import Record

PROBE = "margins"
Place = tuple[str, int, str]  # prompt, turn, hash of the common prefix


@dataclass(frozen=True)
class Margin:
    """nats: between the two tokens. above: more than that, where one of them is not among the
    likeliest that were told. unknown: why neither is known."""

    nats: float | None = None
    above: float | None = None
    unknown: str | None = None


BY_TEXT = Margin(unknown="these outputs have no token ids")


@dataclass(frozen=True)
class Margins:
    """scores: place -> {token: log probability}; refused: place -> why it was not scored."""

    scores: Mapping[Place, Mapping[int, float]] = field(default_factory=dict)
    refused: Mapping[Place, str] = field(default_factory=dict)
    nobody: str = "no target-only launch was asked to score it"

    def at(self, record: Record, position: int, one: Any, other: Any) -> Margin:
        """Of the tokens `one` and `other` after the first `position` tokens of the output."""
        if one is None or other is None:
            return Margin(unknown="one of the outputs ends there")
        prefix = (record.output_ids or ())[:position]
        place = (record.prompt_id, record.turn, prefix_sha256(prefix))
        told = self.scores.get(place)
        if told is None:
            return Margin(unknown=self.refused.get(place, self.nobody))
        if one in told and other in told:
            return Margin(nats=abs(told[one] - told[other]))
        known = [told[token] for token in (one, other) if token in told]
        if not known:
            return Margin(unknown=f"neither is among the target's {len(told)} likeliest tokens")
        return Margin(above=known[0] - min(told.values()))


def margins_of(run: Run) -> Margins:
    """What the probe wrote down in this run."""
    scores: dict[Place, Mapping[int, float]] = {}
    refused: dict[Place, str] = {}
    nobody = Margins.nobody
    for line in run.probes:
        if line.probe != PROBE:
            continue
        seen = line.seen
        if line.status == "failed":
            nobody = f"the target-only launch could not be asked: {line.reason}"
        if line.step == "scored":
            scores[_place(seen)] = {int(token): float(score) for token, score in seen["top"]}
        elif line.step == "not-scored":
            refused[_place(seen)] = str(seen["why"])
    return Margins(scores, refused, nobody)


def _place(seen: Mapping[str, Any]) -> Place:
    return str(seen["prompt"]), int(seen["turn"]), str(seen["prefix_sha256"])
