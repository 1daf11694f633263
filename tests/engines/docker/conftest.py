"""A Docker Engine for these tests: DOCKER_HOST, the usual socket, or the one that
scripts/docker-engine.sh started. Where CI=true it must be there; elsewhere its absence skips."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qualify.engines.docker_client import connect
from qualify.errors import EngineError

BASE = os.environ.get("QUALIFY_BASE_IMAGE", "qualify-base:local")
BY_HAND = Path(os.environ.get("QUALIFY_DOCKER_DIR", "/var/tmp/qualify-docker")) / "docker.sock"


@pytest.fixture(scope="session")
def engine_host() -> Iterator[str | None]:
    """Why there is none, or None when one answers and has the base image."""
    before = os.environ.get("DOCKER_HOST")
    if before is None and not Path("/var/run/docker.sock").exists() and BY_HAND.exists():
        os.environ["DOCKER_HOST"] = f"unix://{BY_HAND}"
    why = None
    try:
        client = connect()
        if not client.images.list(name=BASE):
            why = f"the base image {BASE} is missing; run scripts/docker-engine.sh start"
        client.close()
    except EngineError as error:
        why = f"{error.message} Run scripts/docker-engine.sh start."
    yield why
    if before is None:
        os.environ.pop("DOCKER_HOST", None)


@pytest.fixture
def docker(engine_host: str | None) -> Iterator[Any]:
    """A client of a real Docker Engine that has the base image."""
    if engine_host is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(engine_host)
        pytest.skip(engine_host)
    client = connect()
    yield client
    client.close()


@pytest.fixture
def alone(docker: Any) -> Iterator[None]:
    """One test at a time that sweeps, or that leaves something to sweep."""
    with (Path(tempfile.gettempdir()) / "qualify-docker-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
