"""What a launch leaves behind: device memory that is not given back, processes that still live."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from dataclasses import asdict, dataclass
from typing import Any

from qualify.engines.devices import nvidia_devices, run_tool
from qualify.engines.owned import marked_processes
from qualify.engines.started import StartedEngine

SETTLE_S = 15.0  # a driver frees what a dead process held a moment after its end
AGAIN_S = 0.5
TOLERANCE_BYTES = 64 << 20  # a display, a monitor: what others on the device may take meanwhile


@dataclass(frozen=True)
class Left:
    """devices_before and devices_after: bytes in use by device, None where no tool tells.

    processes: ids of processes of the launch that outlived its stop.
    """

    exit: dict[str, Any] | None
    devices_before: dict[str, int] | None
    devices_after: dict[str, int] | None
    waited_s: float
    processes: tuple[int, ...]


def memory_in_use() -> dict[str, int] | None:
    """Device -> bytes in use, through NVML, nvidia-smi or xpu-smi; None without a device."""
    found: dict[str, int] = {}
    for device in nvidia_devices() or ():
        used = device.get("memory_used_bytes")
        if used is None and str(device.get("memory_used_mib", "")).isdecimal():
            used = int(device["memory_used_mib"]) << 20
        if isinstance(used, int):
            found[str(device.get("uuid") or device.get("index"))] = used
    found |= _intel()
    return found or None


def _intel() -> dict[str, int]:
    """xpu-smi's metric 18: GPU memory used, in MiB, one row a device."""
    text = run_tool("xpu-smi", "dump", "-d", "-1", "-m", "18", "-n", "1")
    rows = list(csv.reader(io.StringIO(text or ""), skipinitialspace=True))
    found = {}
    for row in rows[1:]:
        if len(row) >= 3 and row[1].isdecimal():
            try:
                found[f"xpu {row[1]}"] = round(float(row[2]) * (1 << 20))
            except ValueError:  # N/A: this device does not tell
                continue
    return found


async def look_after(
    before: dict[str, int] | None,
    started: StartedEngine | None,
    *,
    within_s: float = SETTLE_S,
) -> Left:
    """What is left once a launch was stopped; `started` None: it was not ours to stop.

    Waits `within_s` for drivers to free memory and processes to go, and not where all is well.
    """
    marker = started.marker if started is not None else None
    exit_ = started.exit if started is not None else None
    began = time.monotonic()
    while True:
        after = await asyncio.to_thread(memory_in_use) if before is not None else None
        alive = await asyncio.to_thread(_processes, marker)
        waited = time.monotonic() - began
        if not (alive or grown(before, after)) or waited >= within_s:
            told = asdict(exit_) if exit_ is not None else None
            return Left(told, before, after, waited, alive)
        await asyncio.sleep(AGAIN_S)


def grown(before: dict[str, int] | None, after: dict[str, int] | None) -> dict[str, int]:
    """Device -> bytes more in use than before the launch, beyond the tolerance."""
    if before is None or after is None:
        return {}
    more = {name: used - before[name] for name, used in after.items() if name in before}
    return {name: change for name, change in more.items() if change > TOLERANCE_BYTES}


def _processes(marker: str | None) -> tuple[int, ...]:
    if marker is None:
        return ()
    return tuple(p.pid for p in marked_processes(marker, 0.0))
