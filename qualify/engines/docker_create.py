"""A container's plan -> what docker-py's `containers.create` takes."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qualify.engines.docker_nouns import ContainerPlan, ContainerSettings
from qualify.engines.owned import MARKER, Owned

LABEL = "qualify."
ALL_GPUS = -1


def machine() -> str:
    """Which machine's process numbers the labels speak of."""
    try:
        number = Path("/etc/machine-id").read_text().strip()
    except OSError:
        number = ""
    return f"{socket.gethostname()}/{number}"


def labels_of(owned: Owned, folder: Path) -> dict[str, str]:
    """Enough to tell, from the container alone, whose it is and whether its run is dead."""
    return {
        f"{LABEL}run": folder.resolve().name,
        f"{LABEL}folder": str(folder.resolve()),
        f"{LABEL}launch": owned.launch,
        f"{LABEL}marker": owned.marker,
        f"{LABEL}machine": machine(),
        f"{LABEL}harness-pid": str(owned.harness_pid),
        f"{LABEL}harness-started": repr(owned.harness_started),
    }


def create_arguments(
    docker: Any,
    plan: ContainerPlan,
    *,
    image_id: str,
    command: tuple[str, ...],
    env: Mapping[str, str],
    groups: list[str],
    port: int,
    owned: Owned,
    folder: Path,
    leave_out: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """leave_out: names of ulimits that the host refused. The port is published on 127.0.0.1."""
    types = docker.types
    settings = plan.settings
    arguments: dict[str, Any] = {
        "image": image_id,
        "command": list(command),
        "name": f"qualify-{owned.marker}",
        "labels": labels_of(owned, folder),
        "environment": {**env, MARKER: owned.marker},
        "detach": True,
        # An image's own health check may generate, and a cold server must not be made to.
        "healthcheck": {"test": ["NONE"]},
        "mounts": [_mount(types, volume) for volume in plan.volumes],
        "ulimits": [
            types.Ulimit(name=name, soft=value, hard=value)
            for name, value in settings.ulimits
            if name not in leave_out
        ],
        **_settings(types, settings, groups),
    }
    if plan.container_port is None:
        arguments["network_mode"] = "host"
    else:
        arguments["ports"] = {f"{plan.container_port}/tcp": ("127.0.0.1", port)}
    return arguments


def _mount(types: Any, volume: str) -> Any:
    """A bind that fails where the source is missing, instead of making an empty folder."""
    source, inside, *rest = volume.split(":")
    return types.Mount(target=inside, source=source, type="bind", read_only=rest == ["ro"])


def _settings(types: Any, settings: ContainerSettings, groups: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "devices": [d if ":" in d else f"{d}:{d}:rwm" for d in settings.devices] or None,
        "group_add": groups or None,
        "ipc_mode": settings.ipc,
        "shm_size": settings.shm_bytes,
        "mem_limit": settings.memory_bytes,
        "cap_add": list(settings.cap_add) or None,
        "security_opt": list(settings.security) or None,
        "init": settings.init or None,
        "device_requests": _gpus(types, settings.gpus),
    }
    return {name: value for name, value in found.items() if value is not None}


def _gpus(types: Any, gpus: str | int | tuple[str, ...] | None) -> list[Any] | None:
    """As `docker run --gpus` asks for them."""
    if gpus is None:
        return None
    if isinstance(gpus, tuple):
        return [types.DeviceRequest(device_ids=list(gpus), capabilities=[["gpu"]])]
    count = ALL_GPUS if gpus == "all" else int(gpus)  # `available` was decided before
    return [types.DeviceRequest(count=count, capabilities=[["gpu"]])]
