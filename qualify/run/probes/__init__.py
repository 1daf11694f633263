"""Extra requests for the checks that need some, after a launch's cells and evaluations.

One file a probe, named like the check that reads what it wrote (`probes.jsonl`); what it will
send is planned in `planning/probes/`. A probe decides nothing: verdicts are made of records.
"""

from __future__ import annotations

from qualify.run.probes import capacity, graphs, lifecycle, reuse
from qualify.run.probes.probing import Probe

PROBES: dict[str, Probe] = {
    "capacity": capacity.probe,
    "graphs": graphs.probe,
    "reuse": reuse.probe,
    "lifecycle": lifecycle.probe,
}
