"""What a campaign's `checks:` says to each check, and which verdicts it demands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Option names that each check understands; a campaign may be validated against this.
OPTIONS: dict[str, tuple[str, ...]] = {
    "completion": (),
    "identity": (),
    "integrity": (),
    "image": (),
    "shape": (),
    "prompts": (),
    "cold": (),
    "prefill": (),
    "length": (),
    "retractions": (),
    "capacity": ("limit", "concurrency"),
    "graphs": ("target", "draft", "sizes"),
    "kernels": ("forbid", "allow"),
    "telemetry": ("device_gib", "host_gib", "energy_j_per_token"),
    "stream": (),
    "parity": ("pairs", "waive_below_margin", "staggered"),
    "ranks": (),
    "acceptance": ("floor",),
    "counters": (),
    "expect": (),
    "warmth": (),
    "protocol": (),
    "client": ("late_share",),
    "implausible": (),
    "evals": (),
    "retrieval": (),
    "lifecycle": ("tokens", "idle_s", "median_ratio", "tail_ratio"),
    "reuse": ("tokens",),
    "cliff": ("growth_pct",),
}


@dataclass(frozen=True)
class Settings:
    """`checks` of the plan: name -> true | false | a word | a mapping of options."""

    checks: Mapping[str, Any] = field(default_factory=dict)

    def off(self, name: str) -> bool:
        return self.checks.get(name) is False

    def named(self, name: str) -> bool:
        """Did the campaign ask for it by name? Then its absence is not passed over."""
        return name in self.checks and not self.off(name)

    def option(self, name: str, key: str) -> Any:
        """One option of one check; None where the campaign does not set it."""
        value = self.checks.get(name)
        return value.get(key) if isinstance(value, Mapping) else None

    def number(self, name: str, key: str) -> float | None:
        value = self.option(name, key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else None
