"""Sandboxes for these tests. In CI their absence fails; elsewhere it skips."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qualify.evals.sandbox.bubblewrap import Bubblewrap
from qualify.evals.sandbox.docker import Docker

BY_HAND = Path(os.environ.get("QUALIFY_DOCKER_DIR", "/var/tmp/qualify-docker")) / "docker.sock"


def missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def bubblewrap() -> Bubblewrap:
    found = Bubblewrap()
    if not found.present:
        missing("bwrap is not installed: apt-get install bubblewrap")
    return found


@pytest.fixture
def docker_cage(monkeypatch: pytest.MonkeyPatch) -> Docker:
    if not Path("/var/run/docker.sock").exists() and BY_HAND.exists():
        monkeypatch.setenv("DOCKER_HOST", f"unix://{BY_HAND}")
    found = Docker()
    if not found.present:
        missing("no Docker Engine answers: scripts/docker-engine.sh start")
    return found
