"""Intel GPUs through xpu-smi, where it is installed.

Source: xpu-smi's `dump` metrics: 1 power (W), 8 energy consumed (J), 18 memory used (MiB). Each
look starts a program, so that only the ends of a cell are looked at, not its middle.
"""

from __future__ import annotations

import csv
import io
import shutil

from qualify.engines.devices import run_tool
from qualify.engines.meters.nouns import DeviceLook


def present() -> bool:
    return shutil.which("xpu-smi") is not None


def look() -> list[DeviceLook]:
    """One look at every device; empty where the tool says nothing."""
    return read(run_tool("xpu-smi", "dump", "-d", "-1", "-m", "1,8,18", "-n", "1") or "")


def read(text: str) -> list[DeviceLook]:
    """Rows of `Timestamp, DeviceId, power, energy, memory`; N/A is None."""
    rows = list(csv.reader(io.StringIO(text), skipinitialspace=True))
    found = []
    for row in rows[1:]:
        if len(row) >= 5 and row[1].isdecimal():
            power, energy, memory = (_number(cell) for cell in row[2:5])
            used = round(memory * (1 << 20)) if memory is not None else None
            found.append(DeviceLook(f"xpu {row[1]}", used, None, energy, power))
    return found


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
