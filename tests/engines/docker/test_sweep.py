"""What a killed harness leaves is found by its labels and ended; what lives is let alone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qualify.cli.app import cli
from qualify.engines.docker_sweep import sweep_containers
from qualify.engines.ready import wait_ready
from qualify.engines.server import launch
from tests.engines.docker.boxes import boxed, left

HARNESS = """
import asyncio, sys
from pathlib import Path
from qualify.engines.ready import wait_ready
from qualify.engines.server import launch
from tests.engines.docker.boxes import boxed

async def run(folder):
    resolved = boxed(folder, "--load-s", "1", "--last-words", "after the kill")
    async with launch(resolved, folder, "r1.a#1"):
        print("started", flush=True)
        await asyncio.sleep(600)

asyncio.run(run(Path(sys.argv[1])))
"""


def killed_harness(folder: Path) -> None:
    """A harness that starts a container and is killed with SIGKILL."""
    child = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()


@pytest.fixture
def orphan(docker: Any, alone: None, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "dead"
    folder.mkdir()
    killed_harness(folder)
    assert len(left(docker, folder)) == 1
    yield folder
    for name in left(docker, folder):
        docker.api.remove_container(name, force=True)


def test_an_orphan_is_ended_its_log_saved_and_removed(docker: Any, orphan: Path) -> None:
    (name,) = left(docker, orphan)
    deadline = time.monotonic() + 30  # it says something more after its harness was killed
    while b"after the kill" not in docker.containers.get(name).logs():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    swept = [s for s in sweep_containers() if "of dead ended" in s.note]
    assert "r1.a#1" in [s.launch for s in swept]
    assert left(docker, orphan) == []
    assert "after the kill" in (orphan / "engine-r1.a#1.log").read_text()


def test_a_container_that_is_being_measured_is_let_alone(
    docker: Any, alone: None, tmp_path: Path
) -> None:
    async def run() -> None:
        async with launch(boxed(tmp_path), tmp_path, "r1.b#1") as server:
            await wait_ready(server, timeout_s=60)
            swept = await asyncio.to_thread(sweep_containers)
            assert "r1.b#1" not in [s.launch for s in swept]
            assert server.alive()
            assert len(left(docker, tmp_path)) == 1

    asyncio.run(run())


def test_doctor_names_an_orphan_and_sweeps_it_when_asked(docker: Any, orphan: Path) -> None:
    told = CliRunner().invoke(cli, ["doctor"])
    assert "r1.a#1 of dead" in told.output
    assert len(left(docker, orphan)) == 1
    swept = CliRunner().invoke(cli, ["doctor", "--sweep"])
    assert "of dead ended and removed" in swept.output
    assert left(docker, orphan) == []
