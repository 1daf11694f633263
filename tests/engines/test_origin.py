"""What ran is written down, and nothing that it should not know."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from qualify.engines import devices
from qualify.engines.host import host_facts
from qualify.engines.origin import origin_of, relevant_environment
from qualify.engines.ready import wait_ready
from qualify.engines.server import launch
from tests.engines.toys import toy


def test_command_environment_model_and_machine_are_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "m.gguf"
    model.write_bytes(b"weights")
    resolved = replace(toy(tmp_path), env={"OMP_NUM_THREADS": "1"}, model=str(model))

    async def run() -> dict[str, object]:
        async with launch(resolved, tmp_path, "a") as server:
            await wait_ready(server, timeout_s=20)
            return origin_of(server, await server.protocol.describe())

    origin = json.loads(json.dumps(asyncio.run(run())))
    assert origin["argv"][1].endswith("toy_server.py")
    assert "{port}" not in origin["argv"]
    assert origin["env"] == {"OMP_NUM_THREADS": "1"}
    digest = hashlib.sha256(b"weights").hexdigest()
    assert origin["model"]["files"] == {"m.gguf": {"sha256": digest, "bytes": 7}}
    assert origin["host"]["memory_bytes"] == psutil.virtual_memory().total
    assert origin["host"]["cpus"] == os.cpu_count()
    assert origin["client"]["qualify"]


def test_inherited_variables_are_told_and_secrets_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("VLLM_API_KEY", "hush")
    monkeypatch.setenv("EDITOR", "ed")
    told = relevant_environment()
    assert told["OMP_NUM_THREADS"] == "3"
    assert "VLLM_API_KEY" not in told
    assert "EDITOR" not in told


def test_what_the_machine_cannot_tell_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object, **__: object) -> str:
        raise OSError("no")

    monkeypatch.setattr(Path, "read_text", unreadable)
    facts = host_facts()
    assert facts["cpu_governor"] is None
    assert facts["cpu_quota"] is None
    assert facts["memory_limit_bytes"] is None


def tool(folder: Path, name: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's command line tool that prints `output`."""
    file = folder / name
    file.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_nvidia_devices_are_read_from_their_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "Some GPU, GPU-1, 580.1, 24576, 3, 1410, 9501, 41, 67.50, 0x0"
    tool(tmp_path, "nvidia-smi", line, monkeypatch)
    assert subprocess.run(["nvidia-smi"], capture_output=True, check=True).stdout
    (device,) = devices._nvidia_smi() or []
    assert (device["name"], device["driver"], device["sm_mhz"]) == ("Some GPU", "580.1", "1410")


def test_intel_devices_are_read_from_their_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(
        tmp_path,
        "xpu-smi",
        '{"device_list": [{"device_id": 0, "device_name": "Arc"}]}',
        monkeypatch,
    )
    assert devices.intel_devices() == [{"device_id": 0, "device_name": "Arc"}]


def test_a_tool_that_answers_rubbish_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "xpu-smi", "No device found", monkeypatch)
    assert devices.intel_devices() is None


def test_a_machine_without_accelerators_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "nvidia_devices", lambda: None)
    monkeypatch.setattr(devices, "intel_devices", lambda: None)
    assert devices.device_facts() is None
