"""GPUs that are asked for only where the Docker Engine can give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qualify.engines.docker_gpus import gives_gpus, with_gpus
from tests.engines.docker.boxes import boxed

RUNC = {"runc": {"path": "runc"}}
NVIDIA = {**RUNC, "nvidia": {"path": "nvidia-container-runtime"}}


class Engine:
    """Answers `info` as an engine with these runtimes does."""

    def __init__(self, runtimes: dict[str, Any]) -> None:
        self._runtimes = runtimes

    def info(self) -> dict[str, Any]:
        return {"Runtimes": self._runtimes}


@pytest.mark.parametrize(("runtimes", "gpus"), [(RUNC, None), (NVIDIA, "all")])
def test_available_means_all_or_none_and_says_which(
    tmp_path: Path, runtimes: dict[str, Any], gpus: str | None
) -> None:
    plan = boxed(tmp_path, docker={"gpus": "available"}).container
    assert plan is not None
    decided, notes = with_gpus(Engine(runtimes), plan)
    assert decided.settings.gpus == gpus
    assert len(notes) == 1
    assert notes[0].startswith("GPUs: ")


def test_an_engine_that_was_asked_for_all_is_not_decided_for(tmp_path: Path) -> None:
    plan = boxed(tmp_path, docker={"gpus": "all"}).container
    assert plan is not None
    assert with_gpus(Engine(RUNC), plan) == (plan, ())


def test_devices_by_their_interface_count_too() -> None:
    assert gives_gpus({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]})
    assert not gives_gpus({})
