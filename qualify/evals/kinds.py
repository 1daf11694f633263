"""Every kind of evaluation by its name; nothing registers itself."""

from __future__ import annotations

from qualify.evals.code import Cage, CodeKind
from qualify.evals.math import MathKind
from qualify.evals.nouns import Kind
from qualify.evals.retrieval import NeedlesKind


def all_kinds(cage: Cage | None = None) -> dict[str, Kind]:
    """Fresh kinds; `cage` is the sandbox that the code evaluations are to use."""
    cage = cage or Cage()
    kinds: dict[str, Kind] = {n: CodeKind(n, cage) for n in ("humaneval", "mbpp", "minicode")}
    return {**kinds, "gsm8k": MathKind(), "needles": NeedlesKind()}
