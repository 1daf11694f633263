"""A port for a container, and who has it already."""

from __future__ import annotations

from typing import Any

from qualify.engines.docker_client import connect, ssh_target
from qualify.engines.ports import claim, free_port, listeners, port_is_free
from qualify.engines.resolve import ResolvedLaunch
from qualify.errors import EngineError


def claim_for_container(resolved: ResolvedLaunch) -> int:
    """The definition's port if it is free, or a free one. Raises EngineError, naming the
    container that holds it where one does. On another machine the engine there decides."""
    if ssh_target() is not None:
        return resolved.port or free_port(resolved.host)
    if resolved.port is not None and not port_is_free(resolved.host, resolved.port):
        holder = _holder(resolved.port)
        if holder is not None:
            raise EngineError(
                f"Port {resolved.port} is in use by {holder}.",
                "Stop that container (`qualify doctor --sweep` ends those of dead runs), or take "
                "port: out of the engine definition so that a free one is chosen.",
            )
    return claim(resolved.host, resolved.port)


def _holder(port: int) -> str | None:
    """The container that publishes the port, or in which its listener runs."""
    client = connect()
    try:
        inside = {p.pid for p in listeners(port)}
        for found in client.api.containers():
            published = any(p.get("PublicPort") == port for p in found.get("Ports") or ())
            if published or inside & _pids(client, found["Id"]):
                name = str((found.get("Names") or ["?"])[0]).lstrip("/")
                return f"container {name} of image {found.get('Image')}"
        return None
    finally:
        client.close()


def _pids(client: Any, container_id: str) -> set[int]:
    """Every process of it, as this machine numbers them."""
    try:
        table = client.api.top(container_id, ps_args="-eo pid")
    except Exception:  # it may just have ended
        return set()
    return {int(row[0]) for row in table.get("Processes") or () if row[0].isdigit()}
