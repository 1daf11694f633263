"""A check's outcome with its evidence; never a bare boolean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["pass", "fail", "waived", "inconclusive", "not-run"]


@dataclass(frozen=True)
class Verdict:
    """`check` names it (cold, shape, parity ...), `subject` what was judged.

    `sentence` says the outcome to a person, with its numbers; `evidence` holds the numbers
    and the ids of cells and records behind them, JSON-ready. `demanded` is false for a
    verdict that informs without deciding the run's outcome.
    """

    check: str
    subject: str
    outcome: Outcome
    sentence: str
    evidence: dict[str, Any] = field(default_factory=dict)
    demanded: bool = True


def stood_idle(verdicts: Iterable[Verdict]) -> bool:
    """Whether a check judged nothing that anyone had demanded: all not-run, none demanded."""
    return all(v.outcome == "not-run" and not v.demanded for v in verdicts)
