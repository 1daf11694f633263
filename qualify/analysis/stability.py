"""How much launches of the same side differ, and whether the machine drifted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qualify.analysis.stats import mean, t_tail
from qualify.checks.implausible import flaw
from qualify.checks.select import Place, by_side_and_cell
from qualify.records.run import Run
from qualify.records.schema import Record

SURE = 0.01  # a trend is called one from here: each report tests many
LEAST_PROMPTS = 5
NOTABLE = 0.03  # a change from first to last prompt below this matters to no comparison


@dataclass(frozen=True)
class Launches:
    """A side's launches in one cell, over the prompts that all of them measured.

    tpot_ms: launch -> geometric mean. spread: standard deviation of its log, about the
    relative difference between one launch and the next; None with a single launch. range:
    slowest over fastest.
    """

    side: str
    cell: str
    prompts: int
    tpot_ms: dict[str, float]
    spread: float | None
    range: float | None


@dataclass(frozen=True)
class Drift:
    """TPOT over the order in which the prompts of a cell were sent, all launches together.

    change: from the first prompt to the last, along the fitted line (0.05: 5% slower at the
    end). p: of no trend. word: "slower", "faster", or "none" (unsure, or under 3%).
    Pairs are hardly touched: both sides of a pair send their prompts in the same order.
    """

    side: str
    cell: str
    prompts: int
    change: float
    p: float
    word: str


@dataclass(frozen=True)
class Machine:
    """One figure of the host or a device, as it stood before each launch."""

    what: str
    first: float
    last: float
    least: float
    most: float


def launches_of(run: Run) -> list[Launches]:
    """One entry for each side and cell with a measured launch; the baseline's second one
    (self-parity) is counted as a launch of it."""
    return [
        found
        for (side, cell), group in by_side_and_cell(run).items()
        if (found := _launches(side, cell, group)) is not None
    ]


def _launches(side: str, cell: str, group: Sequence[Place]) -> Launches | None:
    logs = {p.launch.id: found for p in group if (found := _logs(p))}
    if not logs:
        return None
    shared = set.intersection(*(set(v) for v in logs.values()))
    levels = {
        launch: centre
        for launch, found in logs.items()
        if (centre := mean([found[k] for k in sorted(shared)])) is not None
    }
    if not levels:
        return None
    values = list(levels.values())
    centre = math.fsum(values) / len(values)
    several = len(values) > 1
    spread = math.sqrt(math.fsum((v - centre) ** 2 for v in values) / max(1, len(values) - 1))
    return Launches(
        side,
        cell,
        len(shared),
        {launch: math.exp(v) for launch, v in levels.items()},
        spread if several else None,
        math.exp(max(values) - min(values)) if several else None,
    )


def _logs(place: Place) -> dict[tuple[str, int], float]:
    return {
        (r.prompt_id, r.turn): math.log(r.timing.tpot_ms)
        for r in place.counted
        if flaw(r) is None and r.timing.tpot_ms
    }


def drifts_of(run: Run) -> list[Drift]:
    """One entry for each side and cell with at least 5 prompts."""
    return [
        found
        for (side, cell), group in by_side_and_cell(run).items()
        if (found := _drift(side, cell, group)) is not None
    ]


def _drift(side: str, cell: str, group: Sequence[Place]) -> Drift | None:
    """A line through log TPOT over the order of sending, prompts averaged over launches."""
    at: dict[tuple[str, int], list[float]] = {}
    level: dict[tuple[str, int], list[float]] = {}
    for place in group:
        logs = _logs(place)
        centre = mean(list(logs.values()))
        for order, record in enumerate(_sent(place.records)):
            key = record.prompt_id, record.turn
            if key in logs and centre is not None:
                at.setdefault(key, []).append(order)
                level.setdefault(key, []).append(logs[key] - centre)
    x = [math.fsum(v) / len(v) for v in at.values()]
    y = [math.fsum(v) / len(v) for v in level.values()]
    if len(x) < LEAST_PROMPTS or max(x) == min(x):
        return None
    slope, p = trend(x, y)
    change = math.expm1(slope * (max(x) - min(x)))
    word = "none"
    if p <= SURE and abs(change) > NOTABLE:
        word = "slower" if change > 0 else "faster"
    return Drift(side, cell, len(x), change, p, word)


def _sent(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda r: (r.t_start_s, r.index, r.turn))


def trend(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """(slope, p of no slope) of the least-squares line, n - 2 degrees of freedom."""
    n, mx, my = len(x), math.fsum(x) / len(x), math.fsum(y) / len(y)
    sxx = math.fsum((a - mx) ** 2 for a in x)
    slope = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sxx
    rest = math.fsum((b - my - slope * (a - mx)) ** 2 for a, b in zip(x, y, strict=True))
    error = math.sqrt(rest / (n - 2) / sxx)
    if error == 0:
        return slope, 0.0 if slope else 1.0
    return slope, min(1.0, 2 * t_tail(abs(slope) / error, n - 2))


def machine_of(run: Run) -> list[Machine]:
    """Clocks, temperatures, throttling and load before each launch, where they were read."""
    seen: dict[str, list[float]] = {}
    for entry in run.launches:
        if entry.status == "started":
            for what, value in _figures(entry.origin):
                seen.setdefault(what, []).append(value)
    return [Machine(w, v[0], v[-1], min(v), max(v)) for w, v in seen.items()]


_HOST = ("cpu_mhz", "cpu_throttle_events", "load_1m")
_DEVICE = ("sm_mhz", "memory_mhz", "temperature_c", "power_w")


def _figures(origin: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    host, devices = origin.get("host"), origin.get("devices")
    if isinstance(host, dict):
        found = {k: host.get(k) for k in _HOST}
        heat = host.get("temperatures_c")
        if isinstance(heat, dict) and heat:
            found["hottest_c"] = max(heat.values())
        yield from ((k, value) for k, v in found.items() if (value := _number(v)) is not None)
    if isinstance(devices, dict):
        for vendor, several in devices.items():
            for index, device in enumerate(several if isinstance(several, list) else []):
                for name in _DEVICE:
                    value = _number(device.get(name)) if isinstance(device, dict) else None
                    if value is not None:
                        yield f"{vendor} {index} {name}", value


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None
