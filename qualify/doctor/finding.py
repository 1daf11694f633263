"""One line of `qualify doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """`fail` means that no run can work; `remedy` is empty only where all is well."""

    name: str
    level: Level
    says: str
    remedy: str = ""
