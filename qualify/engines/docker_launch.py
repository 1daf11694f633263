"""From a resolved launch to a container that can be spoken to at 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from qualify.engines.docker_client import connect, ssh_target
from qualify.engines.docker_container import EngineContainer
from qualify.engines.docker_image import LocalImage, Progress, ensure_image
from qualify.engines.docker_ports import claim_for_container
from qualify.engines.docker_tunnel import Tunnel
from qualify.engines.resolve import ResolvedLaunch


@asynccontextmanager
async def launch_container(
    resolved: ResolvedLaunch, folder: Path, launch_id: str
) -> AsyncIterator[tuple[str, EngineContainer]]:
    """The base URL and the container; stopped, its log saved, removed on the way out.

    The image is verified against its pin again. Raises EngineError when it cannot be started.
    """
    image = await asyncio.to_thread(have_image, resolved)
    port = await asyncio.to_thread(claim_for_container, resolved)
    container = await EngineContainer.start(
        resolved, image, port=port, folder=folder, launch_id=launch_id
    )
    try:
        target = ssh_target()
        if target is None:
            yield f"http://{resolved.host}:{port}", container
            return
        async with Tunnel.open(target, port) as tunnel:
            container.notes = (*container.notes, tunnel.note)
            yield f"http://127.0.0.1:{tunnel.port}", container
    finally:
        await container.stop()


def have_image(resolved: ResolvedLaunch, *, progress: Progress | None = None) -> LocalImage:
    """The launch's image, here and verified. Blocking. Raises EngineError."""
    assert resolved.container is not None
    client = connect()
    try:
        return ensure_image(client, resolved.container.image, progress=progress)
    finally:
        client.close()
