"""Memory, power and energy over the measured part of a cell, sampled beside it.

A thread of its own looks once a second: a few calls of NVML and one small file of /proc for each
process. It never touches the loop that stamps arrival times.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

from qualify.engines.meters import host, intel
from qualify.engines.meters.nouns import DeviceLook, HostLook
from qualify.engines.meters.nvidia import NvidiaMeter

EVERY_S = 1.0


class Metering:
    """`async with Metering(root_pid) as meter:` around the measured part; then `meter.told`.

    told is JSON-ready; what the host does not tell is None, and why it is not is in `missing`.
    """

    def __init__(self, root_pid: int | None, *, every_s: float = EVERY_S) -> None:
        self._root, self._every_s = root_pid, every_s
        self._stop = threading.Event()
        self._times: list[float] = []
        self._devices: list[list[DeviceLook]] = []
        self._hosts: list[HostLook] = []
        self.told: dict[str, Any] = {}

    async def __aenter__(self) -> Metering:
        await asyncio.to_thread(self._start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._end)

    def _start(self) -> None:
        self._pids = host.processes_of(self._root)
        self._nvidia = NvidiaMeter.open()
        self._intel = [intel.look()] if intel.present() else []
        self._look()
        self._thread = threading.Thread(target=self._sample, name="metering", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._pids = tuple({*self._pids, *host.processes_of(self._root)})
        self._look()
        if self._intel:
            self._intel.append(intel.look())
        if self._nvidia is not None:
            self._nvidia.close()
        self.told = self._summary()

    def _sample(self) -> None:
        while not self._stop.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        self._times.append(time.monotonic())
        self._hosts.append(host.look(self._pids))
        self._devices.append(self._nvidia.look(self._pids) if self._nvidia is not None else [])

    def _summary(self) -> dict[str, Any]:
        seconds = self._times[-1] - self._times[0]
        devices = [
            device_summary([look[i] for look in self._devices], self._times)
            for i in range(len(self._devices[0]))
        ]
        ends = [self._times[0], self._times[-1]]
        devices += [
            device_summary(list(pair), ends) for pair in zip(*self._intel, strict=False) if pair
        ]
        first, last = self._hosts[0], self._hosts[-1]
        package = package_change_j(first.package_j, last.package_j)
        rss = [look.rss_bytes for look in self._hosts if look.rss_bytes is not None]
        cpu = None if first.cpu_s is None or last.cpu_s is None else last.cpu_s - first.cpu_s
        missing = []
        if not devices:
            missing.append("no device tells: neither NVML nor xpu-smi answers")
        if package is None:
            missing.append("the processors' energy cannot be read (RAPL)")
        if not rss:
            missing.append("the engine's processes cannot be seen from here")
        return {
            "seconds": seconds,
            "samples": len(self._times),
            "devices": devices,
            "host": {
                "rss_peak_bytes": max(rss) if rss else None,
                "rss_peak_since_start_bytes": host.peak_rss_bytes(self._pids),
                "cpu_s": cpu,
                "package_energy_j": package,
            },
            "missing": missing,
        }


def device_summary(looks: Sequence[DeviceLook], times: Sequence[float]) -> dict[str, Any]:
    """Peaks over the looks; energy as the counter's difference, else from power over time."""
    used = [look.used_bytes for look in looks if look.used_bytes is not None]
    mine = [look.engine_bytes for look in looks if look.engine_bytes is not None]
    power = [look.power_w for look in looks if look.power_w is not None]
    first, last = looks[0].energy_j, looks[-1].energy_j
    energy, basis = None, None
    if first is not None and last is not None and last >= first:
        energy, basis = last - first, "counter"
    elif len(power) == len(looks) > 1:
        steps = zip(times, times[1:], power, power[1:], strict=False)
        energy = sum((t2 - t1) * (a + b) / 2 for t1, t2, a, b in steps)
        basis = "power samples"
    return {
        "device": looks[0].name,
        "used_peak_bytes": max(used) if used else None,
        "engine_peak_bytes": max(mine) if mine else None,
        "energy_j": energy,
        "energy_basis": basis,
        "power_peak_w": max(power) if power else None,
    }


def package_change_j(
    before: dict[str, float] | None, after: dict[str, float] | None
) -> float | None:
    """Joules of all packages; a counter that began again has its range added."""
    if not before or not after or set(before) != set(after):
        return None
    total = 0.0
    for zone, start in before.items():
        change = after[zone] - start
        if change < 0:
            whole = host.range_j(zone)
            if whole is None:
                return None
            change += whole
        total += change
    return total
