"""The host's side: the engine's processes in /proc, and the processors' energy counters."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import psutil

from qualify.engines.meters.nouns import HostLook

POWERCAP = Path("/sys/class/powercap")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def processes_of(root_pid: int | None) -> tuple[int, ...]:
    """The engine's process and all below it; empty where it cannot be seen from here."""
    if root_pid is None:
        return ()
    try:
        root = psutil.Process(root_pid)
        return (root_pid, *(child.pid for child in root.children(recursive=True)))
    except psutil.Error:
        return ()


def look(pids: Collection[int], zones: Path = POWERCAP) -> HostLook:
    """rss is shared pages counted once a process: an upper bound where several share."""
    rss = [n for pid in pids if (n := _rss(pid)) is not None]
    cpu = [s for pid in pids if (s := _cpu_s(pid)) is not None]
    return HostLook(
        sum(rss) if rss else None, sum(cpu) if cpu else None, package_energy_j(zones) or None
    )


def package_energy_j(zones: Path = POWERCAP) -> dict[str, float]:
    """RAPL's package zones -> joules since some start; empty where none can be read (root only
    on most machines)."""
    found = {}
    for zone in sorted(zones.glob("intel-rapl:*")):
        if zone.name.count(":") != 1:  # parts of a package are within it
            continue
        try:
            found[zone.name] = int((zone / "energy_uj").read_text()) / 1e6
        except (OSError, ValueError):
            continue
    return found


def range_j(zone: str, zones: Path = POWERCAP) -> float | None:
    """Where the zone's counter begins again."""
    try:
        return int((zones / zone / "max_energy_range_uj").read_text()) / 1e6
    except (OSError, ValueError):
        return None


def peak_rss_bytes(pids: Collection[int]) -> int | None:
    """Sum of each process's own highest resident size since its start (VmHWM)."""
    found = []
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        line = next((x for x in text.splitlines() if x.startswith("VmHWM:")), None)
        if line is not None:
            found.append(int(line.split()[1]) << 10)
    return sum(found) if found else None


def _rss(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


def _cpu_s(pid: int) -> float | None:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)
