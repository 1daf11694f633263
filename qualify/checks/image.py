"""The image holds what its engine definition says, seen without running it."""

from __future__ import annotations

from qualify.checks.inspected import verdicts_of
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.records.run import Run


def check(run: Run, settings: Settings) -> list[Verdict]:
    """One verdict a side, where the campaign names `image` and it runs in a container."""
    return verdicts_of(run, settings, "image")
