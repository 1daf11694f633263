"""What the machine is and how it stands: processors, memory, load, clocks, heat.

Everything is None where it cannot be read; nothing here raises.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil


def host_facts() -> dict[str, Any]:
    """JSON-ready; sizes in bytes, clocks in MHz, temperatures in degrees Celsius."""
    memory = psutil.virtual_memory()
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "distribution": _distribution(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": _usable_cpus(),
        "cpu_quota": _cgroup_cpus(),
        "cpu_governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "cpu_mhz": _cpu_mhz(),
        "cpu_throttle_events": _number(
            "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
        ),
        "temperatures_c": _temperatures(),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "memory_limit_bytes": _number("/sys/fs/cgroup/memory.max"),
        "swap_used_bytes": psutil.swap_memory().used,
        "load_1m": _load(),
    }


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _cpu_model() -> str | None:
    for line in (_text("/proc/cpuinfo") or "").splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip() or None
    return platform.processor() or None


def _usable_cpus() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _cgroup_cpus() -> float | None:
    """Processors that the control group allows: quota / period; None = no limit."""
    parts = (_text("/sys/fs/cgroup/cpu.max") or "").split()
    if len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit():
        return int(parts[0]) / int(parts[1])
    return None


def _cpu_mhz() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError, AttributeError):
        return None
    return float(frequency.current) if frequency is not None and frequency.current else None


def _temperatures() -> dict[str, float] | None:
    read = getattr(psutil, "sensors_temperatures", None)
    if read is None:
        return None
    try:
        found = {
            f"{chip}.{entry.label or index}": float(entry.current)
            for chip, entries in read().items()
            for index, entry in enumerate(entries)
        }
    except OSError:
        return None
    return found or None


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: str) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdigit() else None
