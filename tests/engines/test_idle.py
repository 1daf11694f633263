"""What a launch leaves behind is seen: a process that lives, memory that is not given back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from qualify.engines import idle
from qualify.engines.exits import EngineExit
from qualify.engines.owned import MARKER

GIB = 1 << 30


@dataclass
class Stopped:
    """A launch that has ended, by what `look_after` asks of it."""

    marker: str
    exit: EngineExit | None
    log_path: Path = Path("none")
    pid: int | None = None
    root_pid: int | None = None

    def alive(self) -> bool:
        return False

    def forwards(self, process: psutil.Process) -> bool:
        return False

    def facts(self) -> dict[str, object]:
        return {}

    async def stop(self) -> EngineExit:
        return EngineExit(0, None)


def test_a_process_that_outlives_its_launch_is_named_and_one_that_ended_is_not() -> None:
    marker = f"idle-test.{os.getpid()}"
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, MARKER: marker}
    )
    try:
        left = asyncio.run(
            idle.look_after(None, Stopped(marker, EngineExit(0, None)), within_s=0.0)
        )
        assert left.processes == (child.pid,)
    finally:
        child.kill()
        child.wait()
    left = asyncio.run(idle.look_after(None, Stopped(marker, EngineExit(0, None)), within_s=0.0))
    assert left.processes == ()
    assert left.exit == {"code": 0, "signal": None, "forced": False, "oom": False, "note": None}


def test_memory_that_a_driver_frees_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([{"gpu": 9 * GIB}, {"gpu": 9 * GIB}, {"gpu": GIB}])
    monkeypatch.setattr(idle, "memory_in_use", lambda: next(seen))
    monkeypatch.setattr(idle, "AGAIN_S", 0.01)
    left = asyncio.run(idle.look_after({"gpu": GIB}, None, within_s=5.0))
    assert left.devices_after == {"gpu": GIB}
    assert idle.grown(left.devices_before, left.devices_after) == {}


def test_memory_that_is_kept_is_told_by_device_and_others_small_change_is_not() -> None:
    before = {"a": GIB, "b": GIB}
    assert idle.grown(before, {"a": 3 * GIB, "b": GIB + (1 << 20)}) == {"a": 2 * GIB}
    assert idle.grown(None, {"a": GIB}) == {}
    assert idle.grown(before, None) == {}


def test_used_memory_is_read_in_every_tools_own_form(monkeypatch: pytest.MonkeyPatch) -> None:
    head = "Timestamp, DeviceId, GPU Memory Used (MiB)\n"
    dump = f"{head}06:14:46.000, 0, 120.50\n06:14:46.001, 1, N/A\n"
    monkeypatch.setattr(idle, "run_tool", lambda *words: dump if words[0] == "xpu-smi" else None)
    nvml = {"index": 0, "uuid": "GPU-1", "memory_used_bytes": 5}
    smi = {"uuid": "GPU-2", "memory_used_mib": "12"}
    monkeypatch.setattr(idle, "nvidia_devices", lambda: [nvml, smi])
    assert idle.memory_in_use() == {
        "GPU-1": 5,
        "GPU-2": 12 << 20,
        "xpu 0": round(120.5 * (1 << 20)),
    }
    monkeypatch.setattr(idle, "nvidia_devices", lambda: None)
    monkeypatch.setattr(idle, "run_tool", lambda *words: None)
    assert idle.memory_in_use() is None
