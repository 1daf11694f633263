"""One axis of a chart: values to pixels, and round numbers along it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """``low`` to ``high`` in value, ``start`` to ``stop`` in pixels; log or linear."""

    low: float
    high: float
    start: float
    stop: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, at = (self._of(v) for v in (self.low, self.high, value))
        return round(self.start + (at - low) / (high - low) * (self.stop - self.start), 1)

    def _of(self, value: float) -> float:
        return math.log(value) if self.log else value

    def ticks(self, apart: float) -> list[float]:
        """Round values inside, at least ``apart`` pixels from one another."""
        room = max(2, int(abs(self.stop - self.start) / apart))
        steps = self._log_ticks() if self.log else self._even_ticks(room)
        kept: list[float] = []
        for value in steps:
            if self.low <= value <= self.high and all(
                abs(self(value) - self(k)) >= apart for k in kept
            ):
                kept.append(value)
        return kept

    def _log_ticks(self) -> list[float]:
        first, last = (math.floor(math.log10(v)) for v in (self.low, self.high))
        decades = [10.0**e for e in range(first, last + 1)]
        # Decades first, so that a crowded axis keeps those.
        return decades + [m * d for m in (3, 2, 5, 1.5, 4, 7) for d in decades]

    def _even_ticks(self, room: int) -> list[float]:
        rough = (self.high - self.low) / room
        step = 10.0 ** math.floor(math.log10(rough))
        step *= next(m for m in (1, 2, 5, 10) if step * m >= rough)
        first = math.ceil(self.low / step)
        return [round(n * step, 10) for n in range(first, math.floor(self.high / step) + 1)]


def axis(
    values: Sequence[float], start: float, stop: float, *, log: bool, least: float | None = None
) -> Axis:
    """An axis that holds ``values`` (and ``least``) with a little room at its ends."""
    low, high = min(values), max(values)
    if least is not None:
        low = min(low, least)
    if log:
        pad = max((high / low) ** 0.08, 1.05)
        return Axis(low / pad, high * pad, start, stop, True)
    pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return Axis(low if least is not None else low - pad, high + pad, start, stop, False)
