"""Create and start one container, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualify.engines.docker_client import connect, docker_host, docker_py, reason
from qualify.engines.docker_create import create_arguments
from qualify.engines.docker_errors import explain, refused_ulimits
from qualify.engines.docker_gpus import with_gpus
from qualify.engines.docker_image import LocalImage
from qualify.engines.docker_where import DockerHost, check_host, groups_of
from qualify.engines.owned import Owned, new_owned
from qualify.engines.resolve import ResolvedLaunch

_NO_ADDRESS = ""


@dataclass(frozen=True)
class Created:
    """A started container. pid: its main process here, None on another machine; address: its
    own on a bridge, else empty."""

    id: str
    name: str
    port: int  # on its machine, at 127.0.0.1
    pid: int | None
    address: str
    owned: Owned
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def start_container(
    resolved: ResolvedLaunch, image: LocalImage, port: int, folder: Path, launch_id: str
) -> Created:
    """Blocking. Raises EngineError with the reason; nothing is left behind then.

    An optional ulimit that the host refuses is left out, and a note says so.
    """
    plan = resolved.container
    assert plan is not None
    host = DockerHost.current()
    check_host(plan, host)
    owned = new_owned(launch_id)
    client = connect()
    try:
        plan, notes = with_gpus(client, plan)
        left_out: frozenset[str] = frozenset()
        while True:
            arguments = create_arguments(
                docker_py(),
                plan,
                image_id=image.id,
                command=resolved.argv_for(port),
                env=resolved.env,
                groups=groups_of(plan, host),
                port=port,
                owned=owned,
                folder=folder,
                leave_out=left_out,
            )
            said = _try(client, arguments)
            if said is None:
                break
            again = refused_ulimits(said, plan) - left_out
            if not again:
                raise explain(said, plan, resolved.engine, port)
            left_out |= again
        notes += tuple(
            f"started without --ulimit {name}: this host refuses it" for name in sorted(left_out)
        )
        return _seen(client, owned, image, arguments["name"], port, notes, host.ssh is None)
    finally:
        client.close()


def _try(client: Any, arguments: dict[str, Any]) -> str | None:
    """None when it runs; else what the engine said, and the container is gone again."""
    errors = docker_py().errors
    try:
        container = client.containers.create(**arguments)
    except errors.DockerException as error:
        return reason(error)
    try:
        container.start()
    except BaseException as error:
        # A failed start leaves a container in state `created`.
        container.remove(force=True, v=True)
        if isinstance(error, errors.DockerException):
            return reason(error)
        raise
    return None


def _seen(
    client: Any,
    owned: Owned,
    image: LocalImage,
    name: str,
    port: int,
    notes: tuple[str, ...],
    local: bool,
) -> Created:
    attrs = client.api.inspect_container(name)
    networks = (attrs.get("NetworkSettings") or {}).get("Networks") or {}
    addresses = [str(n.get("IPAddress") or "") for n in networks.values()]
    version = client.version()
    config, host_config = attrs.get("Config") or {}, attrs.get("HostConfig") or {}
    kept = ("NetworkMode", "IpcMode", "ShmSize", "Memory", "CapAdd", "SecurityOpt", "GroupAdd")
    return Created(
        id=attrs["Id"],
        name=name,
        port=port,
        pid=int(attrs["State"]["Pid"]) or None if local else None,
        address=next((a for a in addresses if a), _NO_ADDRESS),
        owned=owned,
        notes=notes,
        facts={
            "id": attrs["Id"],
            "name": name,
            "image": {
                "name": image.name,
                "id": image.id,
                "digests": list(image.digests),
                **image.facts,
            },
            "entrypoint": config.get("Entrypoint"),
            "settings": {k: host_config.get(k) for k in (*kept, "Ulimits", "Devices", "Runtime")},
            "docker": {"host": docker_host(), "version": version.get("Version")},
        },
    )
