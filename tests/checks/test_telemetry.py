"""Telemetry: limits that are broken are named, what nobody tells is not-run and never 0."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qualify.checks.telemetry import check
from qualify.engines.meters import host, intel
from qualify.engines.meters.nouns import DeviceLook
from qualify.run.metering import Metering, device_summary, package_change_j
from tests.checks.defects import only, run_on, with_checks

GIB = 1 << 30


def test_an_engine_that_holds_more_than_the_limit_fails_and_the_unmodified_one_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_device(monkeypatch)
    named = with_checks({"telemetry": {"host_gib": 0.25}}, {})
    bad = only(check, run_on(tmp_path / "bad", named, "--hog-mib", "300"))
    good = only(check, run_on(tmp_path / "good", named))
    assert (bad.outcome, good.outcome) == ("fail", "pass")
    assert bad.sentence.startswith("The host: 0.3")
    assert "above the limit of 0.25" in bad.sentence
    assert 10 << 20 < good.evidence["host_rss_peak_bytes"] < 0.25 * GIB
    assert good.evidence["host_cpu_s"] >= 0


class ScriptedNvml:
    """NVML's calls, and a device whose truth is known: 100 W, 3 GiB from the second look on."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.began, self.looks, self.open = time.monotonic(), 0, 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    NVML_CLOCK_SM = NVML_CLOCK_MEM = NVML_TEMPERATURE_GPU = 0

    def nvmlSystemGetDriverVersion(self) -> str:
        return "1"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return b"GPU-scripted"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        self.looks += 1
        used = GIB if self.looks == 1 else 3 * GIB
        return SimpleNamespace(used=used, total=80 * GIB)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return round(100 * (time.monotonic() - self.began) * 1000)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 100_000

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        raise self.NVMLError("not supported")


def scripted_device(monkeypatch: pytest.MonkeyPatch) -> ScriptedNvml:
    nvml = ScriptedNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    return nvml


def test_energy_and_peak_memory_of_a_device_are_those_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = scripted_device(monkeypatch)

    async def half_a_second() -> dict[str, Any]:
        async with Metering(None, every_s=0.1) as meter:
            await asyncio.sleep(0.5)
        return meter.told

    told = asyncio.run(half_a_second())
    (device,) = told["devices"]
    assert device["used_peak_bytes"] == 3 * GIB
    assert device["engine_peak_bytes"] is None  # the device does not tell by process
    assert device["energy_basis"] == "counter"
    assert device["energy_j"] == pytest.approx(100 * told["seconds"], rel=0.2)
    assert told["samples"] >= 4
    assert nvml.open == 0  # as often closed as opened
    assert "the engine's processes cannot be seen from here" in told["missing"]


def test_a_device_limit_that_is_broken_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_device(monkeypatch)
    for limit, outcome in ((2.5, "fail"), (3.5, "pass")):
        named = with_checks({"telemetry": {"device_gib": limit}}, {})
        found = only(check, run_on(tmp_path / str(limit), named))
        assert found.outcome == outcome
    assert "Device memory at most 3.00 GiB a rank" in found.sentence
    assert found.evidence["energy_j_per_token"] > 0


def test_a_host_that_tells_of_no_device_is_not_run_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    found = only(check, run_on(tmp_path / "run", with_checks({"telemetry": True}, {})))
    assert (found.outcome, found.demanded) == ("not-run", True)
    assert "No device tells" in found.sentence
    assert found.evidence["devices"] == {}
    limited = with_checks({"telemetry": {"device_gib": 80}}, {})
    found = only(check, run_on(tmp_path / "limited", limited))
    assert found.outcome == "not-run"
    assert "this host does not tell it" in found.sentence
    kept = with_checks({"telemetry": {"host_gib": 4}}, {})
    assert only(check, run_on(tmp_path / "kept", kept)).outcome == "pass"


def test_without_an_energy_counter_power_over_time_is_added_up() -> None:
    looks = [DeviceLook("d", None, None, None, w) for w in (100.0, 200.0, 100.0)]
    told = device_summary(looks, [0.0, 1.0, 3.0])
    # 1 s at 150 W on average, then 2 s at 150 W.
    assert (told["energy_j"], told["energy_basis"], told["power_peak_w"]) == (
        450.0,
        "power samples",
        200.0,
    )
    looks[1] = DeviceLook("d", None, None, None, None)
    assert device_summary(looks, [0.0, 1.0, 3.0])["energy_j"] is None


def test_the_processors_counters_are_read_and_may_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, joules in (("intel-rapl:0", 5), ("intel-rapl:0:0", 3), ("intel-rapl:1", 7)):
        zone = tmp_path / name
        zone.mkdir()
        (zone / "energy_uj").write_text(f"{joules * 1_000_000}\n")
        (zone / "max_energy_range_uj").write_text("100000000\n")
    assert host.package_energy_j(tmp_path) == {"intel-rapl:0": 5.0, "intel-rapl:1": 7.0}
    monkeypatch.setattr(host, "range_j", lambda zone: 100.0)
    before = {"intel-rapl:0": 99.0, "intel-rapl:1": 1.0}
    assert package_change_j(before, {"intel-rapl:0": 5.0, "intel-rapl:1": 7.0}) == 12.0
    assert package_change_j(before, None) is None


def test_xpu_smis_rows_are_read_and_what_is_not_available_is_none() -> None:
    text = (
        "Timestamp, DeviceId, GPU Power (W), GPU Energy Consumed (J), GPU Memory Used (MiB)\n"
        "10:00:00.000,    0, 45.50, 1200.25, 2048.00\n"
        "10:00:00.000,    1, N/A, N/A, 1024.00\n"
    )
    first, second = intel.read(text)
    assert first == DeviceLook("xpu 0", 2048 << 20, None, 1200.25, 45.5)
    assert (second.energy_j, second.power_w, second.used_bytes) == (None, None, 1024 << 20)
