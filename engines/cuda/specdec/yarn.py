"""YaRN: rotary frequencies for contexts beyond the trained one (source: Peng et al. 2023, and the
fields of Hugging Face's ``rope_parameters`` with ``rope_type: yarn``).

A channel pair i of d/2 turns θ^{-2i/d} radians a position. Pairs that turn often within the trained
context stay as they are, pairs that turn less than about once are slowed by ``factor``, and between
the two the mix moves linearly with i. Cosines and sines are also scaled by ``attention_factor``,
so that attention over more keys stays as sharp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.errors import CheckpointError


@dataclass(frozen=True)
class Yarn:
    """``trained_context``: positions before stretching; it is stretched to ``factor`` times them.
    ``beta_fast``, ``beta_slow``: turns within the trained context from which on a pair is kept,
    and below which it is slowed whole. ``truncate``: the ramp begins and ends at whole pairs."""

    factor: float
    trained_context: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    @property
    def context_length(self) -> int:
        """Positions after stretching."""
        return int(self.factor * self.trained_context)

    def slowed(self, rotary_dim: int, theta: float) -> list[float]:
        """How far each of the ``rotary_dim / 2`` pairs is slowed: 0 kept as it is, 1 whole."""
        first = self._pair_with(self.beta_fast, rotary_dim, theta)
        last = self._pair_with(self.beta_slow, rotary_dim, theta)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0.0), min(last, rotary_dim - 1.0)
        width = (last - first) or 0.001  # a ramp of no width is a step
        return [min(max((i - first) / width, 0.0), 1.0) for i in range(rotary_dim // 2)]

    def _pair_with(self, turns: float, rotary_dim: int, theta: float) -> float:
        """The (fractional) pair that turns so often within the trained context."""
        wavelengths = self.trained_context / (turns * 2 * math.pi)
        return rotary_dim * math.log(wavelengths) / (2 * math.log(theta))


def read_yarn(rope: dict[str, Any], declared_context: int, path: Path) -> Yarn | None:
    """From ``rope_parameters`` (or ``rope_scaling``); None for plain rotary positions.

    ``declared_context``: max_position_embeddings, the trained context where the field is missing;
    ``path``: the file, for whoever reads the refusal. Raises CheckpointError for a kind that is not
    implemented, and for values that mean nothing.
    """
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in (None, "default"):
        return None
    if kind != "yarn":
        raise CheckpointError(
            f"{path} has rope_type {kind!r}.",
            "Plain rotary positions (default) and yarn are implemented.",
        )
    if not (rope.get("factor") or rope.get("original_max_position_embeddings")):
        raise CheckpointError(
            f"{path} has rope_type yarn and does not say how far it stretches.",
            "Write factor and original_max_position_embeddings into rope_parameters.",
        )
    trained = int(rope.get("original_max_position_embeddings") or declared_context)
    factor = float(rope.get("factor") or declared_context / trained)
    fast, slow = float(rope.get("beta_fast") or 32.0), float(rope.get("beta_slow") or 1.0)
    attention = rope.get("attention_factor")
    if attention is None:
        attention = _attention_factor(factor, rope.get("mscale"), rope.get("mscale_all_dim"))
    if factor < 1.0 or trained < 1 or fast <= slow or not 0.0 < float(attention) < math.inf:
        raise CheckpointError(
            f"{path} has rope_parameters with factor {factor:g}, "
            f"original_max_position_embeddings {trained}, beta_fast {fast:g}, "
            f"beta_slow {slow:g} and attention_factor {attention}.",
            "Write a factor of at least 1, beta_fast above beta_slow, and positive values.",
        )
    return Yarn(factor, trained, float(attention), fast, slow, bool(rope.get("truncate", True)))


def _attention_factor(factor: float, scale: float | None, scale_all: float | None) -> float:
    def sharpened(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0

    return sharpened(scale) / sharpened(scale_all) if scale and scale_all else sharpened(1.0)
