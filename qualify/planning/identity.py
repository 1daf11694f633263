"""What makes two plans the same plan, part by part, and one hash over all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from qualify.campaign.checks import as_written
from qualify.campaign.schema import Campaign
from qualify.errors import UsageError
from qualify.plan import CellPlan, LaunchPlan, Plan

# What each part is called when a person reads that it changed.
_PARTS = {
    "campaign": "the campaign file",
    "prompts": "the prompts' specification",
    "engine": "the engine definition",
    "thresholds": "the thresholds of checks and gates",
    "evals": "the evaluations or their problems",
    "image": "the image digest",
    "checkpoint": "the checkpoint",
    "tokenizer": "the tokenizer",
    "generator": "the way that prompts are made of texts",
    "only": "the --only filter",
    "attach": "the server that --attach names",
}


def digest(value: Any) -> str:
    """sha256 over canonical JSON: sorted keys, no spaces, UTF-8."""
    text = json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_cell(cell: CellPlan) -> str:
    """The same cell in another plan has the same digest."""
    return digest(asdict(cell))


def normalised(campaign: Campaign) -> dict[str, Any]:
    """The campaign with every default filled in: how it is written does not matter."""
    return {**campaign.model_dump(mode="json"), "checks": as_written(campaign.checks)}


def identity_of(
    campaign: Campaign,
    engine: Mapping[str, Any],
    launches: tuple[LaunchPlan, ...],
    origins: Mapping[str, str],
    only: str,
) -> dict[str, str]:
    """Part name -> sha256 (or the text itself, for `only` and what `origins` brings).

    `origins` holds what only a look at this machine can tell: `corpus:NAME`, `tokenizer`,
    `checkpoint`, `image`, `attach`. What a ledger says after a run is no part of the plan.
    """
    written = normalised(campaign)
    thresholds = {k: written.pop(k) for k in ("checks", "gates")}
    if isinstance(written["ledger"], list):
        written["ledger"] = [line["experiment"] for line in written["ledger"]]
    cells: dict[str, CellPlan] = {c.id: c for launch in launches for c in launch.cells}
    specs = {
        key: [asdict(c.prompts), asdict(c.warmup) if c.warmup else None] for key, c in cells.items()
    }
    parts = {
        "campaign": digest(written),
        "thresholds": digest(thresholds),
        "prompts": digest(specs),
        "engine": digest(engine),
        **origins,
    }
    evals = {e.id: e for launch in launches for e in launch.evals}
    if evals:
        parts["evals"] = digest([asdict(e) for e in evals.values()])
    if only:
        parts["only"] = only
    return parts


def differences(old: Plan, new: Plan) -> list[str]:
    """What changed from `old` to `new`, one sentence a part; empty when nothing did."""
    said = []
    for part in dict.fromkeys((*old.identity, *new.identity)):
        before, after = old.identity.get(part), new.identity.get(part)
        if before != after:
            name = _PARTS.get(part) or f"the corpus {part.removeprefix('corpus:')}"
            said.append(f"{name} differs ({_short(before)} then, {_short(after)} now)")
    if not said and old.hash != new.hash:
        said.append(f"the plan's hash differs ({_short(old.hash)} then, {_short(new.hash)} now)")
    return said


def refuse_changed(old: Plan, new: Plan) -> None:
    """Raises UsageError, naming each part, unless both are the same plan."""
    said = differences(old, new)
    if said:
        raise UsageError(
            "This is not the plan that the run was started with: " + "; ".join(said) + ".",
            "Undo the change to continue, or start a new run without --resume.",
        )


def _short(text: str | None) -> str:
    if text is None:
        return "none"
    hexadecimal = len(text) >= 40 and all(c in "0123456789abcdef" for c in text[-40:])
    return text[:-52] + text[-64:][:12] if hexadecimal and len(text) >= 64 else text
