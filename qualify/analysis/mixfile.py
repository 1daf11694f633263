"""A user's own mix of work, read from a YAML file against what a run measured.

weights: {code@1024: 3, prose@4096/c1: 1}   # how often each kind of work comes
accept_length: {mtp: 2.6}                   # measured on your own prompts, bonus included
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qualify.analysis.mix import Mix
from qualify.campaign.document import Document, read_document
from qualify.campaign.faults import CampaignFaults, did_you_mean
from qualify.campaign.yaml_text import Genre

KEYS = ("weights", "accept_length")
_GENRE = Genre("a", "mix", "weights: {CELL: SHARE}")


def read_mix(path: Path, cells: Sequence[str], sides: Sequence[str]) -> Mix:
    """cells: the measured cell ids; sides: those that propose something.

    A weight may name a cell or WORKLOAD@TOKENS where one cell has that shape. Weights are
    shares of requests and need not sum to anything. Raises CampaignFaults with all faults.
    """
    document = read_document(path, _GENRE)
    for key in document.value:
        if key not in KEYS:
            document.fault((key,), f"`{key}` is not a key of a mix", did_you_mean(key, KEYS))
    weights = _weights(document, cells)
    lengths = _numbers(document, "accept_length", least=1.0)
    for side in lengths:
        if side not in sides:
            document.fault(
                ("accept_length", side),
                f"`{side}` is no drafting mode of this run",
                did_you_mean(side, list(sides)),
            )
    if document.faults:
        raise CampaignFaults(document.faults)
    total = math.fsum(weights.values())
    return Mix({cell: w / total for cell, w in weights.items()}, lengths)


def _weights(document: Document, cells: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, weight in _numbers(document, "weights", least=0.0).items():
        matching = [c for c in cells if name in (c, c.rpartition("/")[0])]
        if len(matching) == 1:
            found[matching[0]] = found.get(matching[0], 0.0) + weight
        elif matching:
            document.fault(
                ("weights", name),
                f"`{name}` was measured at several concurrencies",
                f"Name one: {', '.join(matching)}.",
            )
        else:
            shown = ", ".join(cells[:6]) + (" ..." if len(cells) > 6 else "")
            document.fault(
                ("weights", name), f"`{name}` was not measured", f"The run has: {shown}."
            )
    if not document.faults and not sum(found.values()):
        document.fault(("weights",), "a mix needs weights", "Add `weights: {CELL: SHARE}`.")
    return found


def _numbers(document: Document, key: str, *, least: float) -> dict[str, float]:
    section: Any = document.value.get(key)
    if section is None:
        return {}
    if not isinstance(section, dict):
        document.fault((key,), f"`{key}` is no mapping", f"Write `{key}: {{NAME: NUMBER}}`.")
        return {}
    found = {}
    for name, value in section.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value < least:
            document.fault(
                (key, name),
                f"`{key}.{name}` is {value!r}, not a number of at least {least:g}",
                f"Write a number of at least {least:g}.",
            )
        else:
            found[name] = float(value)
    return found
