"""Containers that dead runs left, found by their labels and ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualify.engines.docker_client import connect, docker_py
from qualify.engines.docker_create import LABEL, machine
from qualify.engines.owned import Swept, is_alive

GRACE_S = 10.0


@dataclass(frozen=True)
class Orphan:
    """A container whose harness is dead, or (alive) one that is being measured now."""

    id: str
    name: str
    run: str
    launch: str
    folder: Path
    status: str
    alive: bool
    elsewhere: bool  # started from another machine: whether its harness lives is not known here


def labelled(client: Any) -> Iterator[Orphan]:
    """Every container of every run, whatever its state."""
    for found in client.api.containers(all=True, filters={"label": f"{LABEL}marker"}):
        labels = {k.removeprefix(LABEL): v for k, v in (found.get("Labels") or {}).items()}
        try:
            pid, started = int(labels["harness-pid"]), float(labels["harness-started"])
        except (KeyError, ValueError):
            continue
        elsewhere = labels.get("machine") != machine()
        yield Orphan(
            id=found["Id"],
            name=str((found.get("Names") or ["?"])[0]).lstrip("/"),
            run=labels.get("run", "?"),
            launch=labels.get("launch", "?"),
            folder=Path(labels.get("folder", ".")),
            status=str(found.get("State")),
            alive=not elsewhere and is_alive(pid, started),
            elsewhere=elsewhere,
        )


def sweep_containers(*, grace_s: float = GRACE_S) -> list[Swept]:
    """End and remove those of dead harnesses of this machine; their logs are saved first.

    Those that are being measured, or were started from another machine, are let alone.
    Raises EngineError when no Docker Engine answers. Blocking.
    """
    client = connect()
    try:
        results = []
        for orphan in labelled(client):
            if orphan.elsewhere:
                note = f"container {orphan.name} was started from another machine"
                results.append(Swept(orphan.launch, (), note))
            elif not orphan.alive:
                _end(client, orphan, grace_s)
                note = f"container {orphan.name} of {orphan.run} ended and removed"
                results.append(Swept(orphan.launch, (), note))
        return results
    finally:
        client.close()


def _end(client: Any, orphan: Orphan, grace_s: float) -> None:
    errors = docker_py().errors
    try:
        if orphan.status == "running":
            client.api.kill(orphan.id, signal="SIGTERM")
            deadline = time.monotonic() + grace_s
            while time.monotonic() < deadline and _runs(client, orphan.id):
                time.sleep(0.1)
        _save_log(client, orphan)
    except errors.APIError as error:
        if error.status_code not in (404, 409):
            raise
    try:
        client.api.remove_container(orphan.id, force=True, v=True)
    except errors.APIError as error:
        if error.status_code not in (404, 409):
            raise


def _runs(client: Any, container_id: str) -> bool:
    return bool(client.api.inspect_container(container_id)["State"]["Running"])


def _save_log(client: Any, orphan: Orphan) -> None:
    """The whole log again: what the dead harness had copied is its beginning."""
    if not orphan.folder.is_dir():
        return
    path = orphan.folder / f"engine-{orphan.launch.replace('/', '-')}.log"
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for chunk in client.api.logs(orphan.id, stdout=True, stderr=True, stream=True):
            file.write(chunk)
    part.replace(path)
