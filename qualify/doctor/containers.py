"""The Docker Engine, where an engine needs one, and containers that dead runs left."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from qualify.doctor.finding import Finding
from qualify.engines.docker_client import DEFAULT, connect, docker_host
from qualify.engines.docker_sweep import labelled, sweep_containers
from qualify.errors import EngineError

SOCKET = Path(DEFAULT.removeprefix("unix://"))


def docker_findings() -> Iterator[Finding]:
    """Whether containers can be started, and what is left of dead runs. None is needed for
    engines that run as processes, so its absence is told and is no failure."""
    if importlib.util.find_spec("docker") is None:
        says = "docker-py is not installed: engines in containers cannot be started"
        yield Finding("docker", "ok", says)
        return
    try:
        client = connect()
    except EngineError as error:
        if _forbidden():
            cure = "Join the group docker, if you measure engines in containers."
            yield Finding("docker", "warn", f"{SOCKET} may not be used by this user", cure)
        else:
            says = f"{error.message} Only engines in containers need it."
            yield Finding("docker", "ok", says)
        return
    try:
        version = client.version().get("Version")
        yield Finding("docker", "ok", f"Docker Engine {version} at {docker_host()}")
        for found in labelled(client):
            if found.alive:
                says = f"container {found.name}: {found.launch} of {found.run} is being measured"
                remedy = "Measure one thing at a time on a machine."
            elif found.elsewhere:
                says = f"container {found.name} was started from another machine"
                remedy = "Run qualify doctor --sweep there."
            else:
                says = (
                    f"{found.launch} of {found.run} ended without cleaning up; container left: "
                    f"{found.name} ({found.status})"
                )
                remedy = "Run: qualify doctor --sweep"
            yield Finding("containers", "warn", says, remedy)
    finally:
        client.close()


def _forbidden() -> bool:
    """Whether the usual socket is there, and closed to this user."""
    usual = docker_host() == DEFAULT and SOCKET.exists()
    return usual and not os.access(SOCKET, os.W_OK)


def sweep_docker() -> Iterator[Finding]:
    """End the containers of dead runs; nothing where no Docker Engine answers."""
    if importlib.util.find_spec("docker") is None:
        return
    try:
        swept = sweep_containers()
    except EngineError:
        return
    for one in swept:
        yield Finding("swept", "ok", f"{one.launch}: {one.note}")
