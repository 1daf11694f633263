"""Accelerators as their vendors' own tools see them; None where there is no such tool."""

from __future__ import annotations

import csv
import importlib
import io
import json
import shutil
import subprocess
from typing import Any

_SMI_FIELDS = {
    "name": "name",
    "uuid": "uuid",
    "driver_version": "driver",
    "memory.total": "memory_mib",
    "memory.used": "memory_used_mib",
    "clocks.sm": "sm_mhz",
    "clocks.mem": "memory_mhz",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "clocks_throttle_reasons.active": "throttle_reasons",
}


def device_facts() -> dict[str, Any] | None:
    """{vendor: [one dict a device]}; None when no accelerator is visible."""
    found: dict[str, Any] = {}
    nvidia = nvidia_devices()
    if nvidia:
        found["nvidia"] = nvidia
    intel = intel_devices()
    if intel:
        found["intel"] = intel
    return found or None


def nvidia_devices() -> list[dict[str, Any]] | None:
    """Through NVML (package nvidia-ml-py) or, without it, nvidia-smi."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return _nvidia_smi()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        driver = _word(nvml.nvmlSystemGetDriverVersion())
        return [_nvml_device(nvml, i, driver) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _nvml_device(nvml: Any, index: int, driver: str) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(call: str, *args: Any) -> Any:
        try:
            return getattr(nvml, call)(handle, *args)
        except (nvml.NVMLError, AttributeError):  # not every device tells everything
            return None

    memory, power = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetPowerUsage")
    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return {
        "index": index,
        "name": _word(ask("nvmlDeviceGetName")),
        "uuid": _word(ask("nvmlDeviceGetUUID")),
        "driver": driver,
        "memory_bytes": memory.total if memory is not None else None,
        "memory_used_bytes": memory.used if memory is not None else None,
        "sm_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "memory_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "temperature_c": ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "power_w": power / 1000 if power is not None else None,
        "throttle_reasons": hex(reasons) if reasons is not None else None,
    }


def _nvidia_smi() -> list[dict[str, Any]] | None:
    text = run_tool(
        "nvidia-smi", f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader,nounits"
    )
    if text is None:
        return None
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [dict(zip(_SMI_FIELDS.values(), row, strict=False)) for row in rows if row] or None


def intel_devices() -> list[dict[str, Any]] | None:
    """Through xpu-smi; its own names are kept."""
    text = run_tool("xpu-smi", "discovery", "-j")
    if text is None:
        return None
    try:
        data = json.loads(text)
    except ValueError:
        return None
    devices = data.get("device_list") if isinstance(data, dict) else None
    return devices if isinstance(devices, list) and devices else None


def run_tool(*command: str) -> str | None:
    """What a vendor's tool prints; None where it is absent or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _word(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
