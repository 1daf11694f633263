"""NVIDIA devices through NVML (package nvidia-ml-py, an extra)."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

from qualify.engines.meters.nouns import DeviceLook


class NvidiaMeter:
    """`open()` gives one, or None where there is no NVML; close it after use."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles = [
            nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())
        ]
        self.names = [self._name(handle) for handle in self._handles]

    @classmethod
    def open(cls) -> NvidiaMeter | None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return None
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return None
        try:
            return cls(nvml)
        except nvml.NVMLError:
            nvml.nvmlShutdown()
            return None

    def look(self, pids: Collection[int]) -> list[DeviceLook]:
        """A few calls a device, well under a millisecond each."""
        found = []
        for name, handle in zip(self.names, self._handles, strict=True):
            memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
            energy = self._ask("nvmlDeviceGetTotalEnergyConsumption", handle)  # mJ
            power = self._ask("nvmlDeviceGetPowerUsage", handle)  # mW
            found.append(
                DeviceLook(
                    name,
                    int(memory.used) if memory is not None else None,
                    self._of(handle, pids),
                    energy / 1000 if energy is not None else None,
                    power / 1000 if power is not None else None,
                )
            )
        return found

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _of(self, handle: Any, pids: Collection[int]) -> int | None:
        """None where no process of the engine is seen there, or its memory is not told."""
        listed = self._ask("nvmlDeviceGetComputeRunningProcesses", handle) or []
        mine = [p.usedGpuMemory for p in listed if p.pid in pids]
        known = [n for n in mine if n is not None]
        return sum(known) if known else None

    def _name(self, handle: Any) -> str:
        told = self._ask("nvmlDeviceGetUUID", handle)
        return told.decode() if isinstance(told, bytes) else str(told)

    def _ask(self, call: str, handle: Any) -> Any:
        try:
            return getattr(self._nvml, call)(handle)
        except (self._nvml.NVMLError, AttributeError):  # not every device tells everything
            return None
