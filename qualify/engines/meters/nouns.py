"""One look at a device or at the host; None for what it does not tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceLook:
    """engine_bytes: what the engine's own processes hold on it; energy_j counts from anywhere."""

    name: str
    used_bytes: int | None
    engine_bytes: int | None
    energy_j: float | None
    power_w: float | None


@dataclass(frozen=True)
class HostLook:
    """Of the engine's processes together; package_j: the processors' energy counters (RAPL)."""

    rss_bytes: int | None
    cpu_s: float | None
    package_j: dict[str, float] | None
