"""The checkpoint and its drafter are whole, and belong together, before anything is started."""

from __future__ import annotations

from qualify.checks.inspected import verdicts_of
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict a side from what `run/probes/before.py` saw: headers, shapes, payload,
    quantisation, agreement of target and drafter (see `qualify.inspect.checkpoint`)."""
    return verdicts_of(run, settings, "integrity")
