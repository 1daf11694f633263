"""What an inspection finds: faults, notes and facts, JSON-ready."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fault:
    """Something that is wrong. `what` is a stable word, `where` a tensor, file or key."""

    what: str
    where: str
    sentence: str


@dataclass(frozen=True)
class Inspection:
    """One thing that was looked at. unjudged says what could not be looked at, and why."""

    subject: str
    kind: str
    faults: tuple[Fault, ...] = ()
    unjudged: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def faults_from(stored: Any) -> list[Fault]:
    """The faults of an inspection that was read back; anything else gives none."""
    listed = stored.get("faults") if isinstance(stored, dict) else None
    return [Fault(f["what"], f["where"], f["sentence"]) for f in listed or ()]
