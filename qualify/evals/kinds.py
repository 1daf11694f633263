"""Every kind of evaluation by its name; nothing registers itself."""

from __future__ import annotations

from qualify.evals.code import Cage, CodeKind
from qualify.evals.nouns import Kind


def all_kinds(cage: Cage | None = None) -> dict[str, Kind]:
    """Fresh kinds; `cage` is the sandbox that the code evaluations are to use."""
    cage = cage or Cage()
    return {name: CodeKind(name, cage) for name in ("humaneval", "mbpp", "minicode")}
