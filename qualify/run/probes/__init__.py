"""Extra requests for the checks that need some, after a launch's cells and evaluations.

One file a probe, named like the check that reads what it wrote (`probes.jsonl`); what it will
send is planned in `planning/probes/`. A probe decides nothing: verdicts are made of records.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qualify.run.probes import capacity, graphs, lifecycle, margins, reuse, staggered
from qualify.run.probes.probing import Probe

# Probes that are about everything measured before them: whether there is nothing to ask.
ABOUT_ALL: dict[str, Callable[[Path], bool]] = {"margins": margins.idle}

PROBES: dict[str, Probe] = {
    "capacity": capacity.probe,
    "graphs": graphs.probe,
    "parity": staggered.probe,
    "reuse": reuse.probe,
    "lifecycle": lifecycle.probe,
    "margins": margins.probe,
}
