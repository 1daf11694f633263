"""DOCKER_HOST=ssh://…: the container runs on another machine, requests go through a tunnel.

A real sshd on 127.0.0.1 plays the other machine; `ssh` in PATH only adds its key and port.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qualify.engines.docker_client import docker_host
from qualify.engines.docker_where import DockerHost
from qualify.engines.ports import free_port
from qualify.engines.ready import Ready, wait_ready
from qualify.engines.server import launch
from qualify.errors import EngineError
from tests.engines.docker.boxes import boxed, left

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
PermitRootLogin prohibit-password
UsePAM no
"""
CLIENT = """#!/bin/sh
exec {ssh} -F none -i {folder}/key -o IdentitiesOnly=yes -o UserKnownHostsFile={folder}/known \
    -o StrictHostKeyChecking=accept-new "$@"
"""


@pytest.fixture
def other_machine(docker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address for DOCKER_HOST, which is set to it."""
    ssh = shutil.which("ssh")
    if ssh is None or not Path(SSHD).exists():
        if os.environ.get("CI") == "true":
            pytest.fail("sshd is missing; run scripts/docker-engine.sh start")
        pytest.skip("openssh-server is not installed")
    socket_path = docker_host().removeprefix("unix://")
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    port = free_port()
    config = folder / "sshd_config"
    config.write_text(CONFIG.format(port=port, folder=folder))
    (folder / "bin").mkdir()
    wrapper = folder / "bin" / "ssh"
    wrapper.write_text(CLIENT.format(ssh=ssh, folder=folder))
    wrapper.chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        address = f"ssh://root@127.0.0.1:{port}{socket_path}"
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("DOCKER_HOST", address)
        yield address
    finally:
        server.terminate()
        server.wait()


def test_a_container_of_another_machine_is_measured_through_a_tunnel(
    docker: Any, other_machine: str, tmp_path: Path
) -> None:
    async def run() -> tuple[Ready, list[str]]:
        async with launch(boxed(tmp_path), tmp_path, "r1.a#1") as server:
            got = await wait_ready(server, timeout_s=90)
            assert server.base_url.startswith("http://127.0.0.1:")
            assert server.process is not None
            assert server.process.facts()["docker"]["host"] == other_machine
            return got, list(server.process.facts()["notes"])

    got, notes = asyncio.run(run())
    assert got.model == "toy-model"
    assert got.ours is None  # its processes cannot be seen from here
    assert any("ssh tunnel to 127.0.0.1" in note for note in notes)
    assert (tmp_path / "engine-r1.a#1.log").read_text() == "toy: starting\n"
    assert left(docker, tmp_path) == []


def test_groups_and_paths_are_looked_up_on_the_other_machine(other_machine: str) -> None:
    there = DockerHost.current()
    assert there.ssh is not None
    assert there.group_id("root") == 0
    assert there.group_id("no-such-group") is None
    assert there.has("/etc/passwd")
    assert not there.has("/no/such path")


def test_a_machine_that_does_not_answer_is_said(
    other_machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"ssh://root@127.0.0.1:{free_port()}")
    with pytest.raises(EngineError, match=r"No Docker Engine answers .*Connection refused"):
        asyncio.run(_enter(tmp_path))


def test_a_plain_tcp_address_of_another_machine_is_refused(
    docker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(EngineError, match=r"go to 127\.0\.0\.1 only") as caught:
        asyncio.run(_enter(tmp_path))
    assert "ssh://" in caught.value.remedy


async def _enter(folder: Path) -> None:
    async with launch(boxed(folder), folder, "a"):
        pass
