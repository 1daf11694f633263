"""Server-wide counters as differences between two looks; never as totals since the start.

A server's life is longer than a cell: `after` alone mixes in everything before. A counter that
nobody reports is None ("not reported"), never 0; one that went backwards means that the engine
was restarted in between, and then nothing of the difference may be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qualify.records.schema import Speculation

RESTARTED = "engine restarted during cell"
NOT_REPORTED = "not reported"

# What a protocol's counters() calls the same things on every engine, beside their own names.
VERIFY_STEPS = "verify_steps"  # V
PROPOSED = "proposed_drafts"  # P
CORRECT = "correct_drafts"  # C
OUTPUT = "output_tokens"  # N
PLAIN = "plain_tokens"  # T
TRIMMED = "trimmed_tokens"  # W
STEPS = "decode_steps"  # forwards; N0 + V + T while one request runs, shared when several do
PROMPT = "prompt_tokens"
CACHED = "cached_tokens"
REQUESTS = "requests"
RETRACTIONS = "retractions"


@dataclass(frozen=True)
class Difference:
    """`values` holds after - before of what both looks reported; `problem` None if usable."""

    values: dict[str, float]
    problem: str | None = None
    before: dict[str, float] | None = None
    after: dict[str, float] | None = None

    def get(self, name: str) -> float | None:
        """None when it was not reported, or when the difference must not be used."""
        return None if self.problem is not None else self.values.get(name)

    def count(self, name: str) -> int | None:
        value = self.get(name)
        return None if value is None else round(value)


def difference(before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> Difference:
    """What happened between two looks. A series that is new in `after` began at zero."""
    looks = (
        dict(before) if before is not None else None,
        dict(after) if after is not None else None,
    )
    if before is None or after is None:
        return Difference({}, NOT_REPORTED, *looks)
    backwards = sorted(
        name for name, value in before.items() if name not in after or after[name] < value
    )
    if backwards:
        return Difference({}, f"{RESTARTED} ({backwards[0]} went backwards)", *looks)
    change = {name: value - before.get(name, 0.0) for name, value in after.items()}
    return Difference(change, None, *looks)


def _copy(look: Mapping[str, float] | None) -> dict[str, float] | None:
    return dict(look) if look is not None else None


def ratio(change: Difference, numerator: str, denominator: str) -> float | None:
    """Ratio of two differences; None when either was not reported or nothing happened."""
    top, bottom = change.get(numerator), change.get(denominator)
    return top / bottom if top is not None and bottom else None


def window_speculation(
    change: Difference, source: str, *, requests: int | None = None, one_by_one: bool = False
) -> Speculation | None:
    """The integers of a window (one request alone, or a whole cell) from counters.

    None when the engine counts no verify steps or was restarted. requests: how many were
    sent, where the engine does not count them. T is derived from the count of forwards where
    the engine counts no plain steps itself, and only when the requests ran `one_by_one`:
    requests that run together share their forwards.
    """
    verify = change.count(VERIFY_STEPS)
    if verify is None:
        return None
    counted = change.count(REQUESTS)
    plain, prefill = change.count(PLAIN), counted if counted is not None else requests
    derived: list[str] = []
    steps = change.count(STEPS)
    if one_by_one and plain is None and steps is not None and prefill is not None:
        plain = steps - verify - prefill
        derived.append("T")
    return Speculation(
        source=source,
        V=verify,
        P=change.count(PROPOSED),
        C=change.count(CORRECT),
        N0=prefill,
        T=plain,
        W=change.count(TRIMMED),
        derived=tuple(derived),
    )
