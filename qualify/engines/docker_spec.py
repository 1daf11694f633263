"""`launch: docker:` as it was read -> frozen nouns."""

from __future__ import annotations

from qualify.engines.docker_nouns import (
    BuildRecipe,
    ContainerSettings,
    DockerLaunch,
    Holds,
    ImagePin,
    size_bytes,
)
from qualify.engines.docker_schema import DockerYaml


def docker_launch(y: DockerYaml) -> DockerLaunch:
    """Sizes become bytes, lists tuples; nothing of this machine is looked at."""
    return DockerLaunch(
        image=ImagePin(y.image, y.digest, y.id, y.pull, y.build is not None),
        build=BuildRecipe(
            y.build.dockerfile,
            tuple(y.build.include),
            dict(y.build.args),
        )
        if y.build is not None
        else None,
        command=tuple(y.command),
        env=dict(y.env),
        settings=ContainerSettings(
            network=y.network,
            devices=tuple(y.devices),
            groups=tuple(y.groups),
            gpus=tuple(y.gpus) if isinstance(y.gpus, list) else y.gpus,
            ipc=y.ipc,
            shm_bytes=size_bytes(y.shm) if y.shm else None,
            memory_bytes=size_bytes(y.memory) if y.memory else None,
            cap_add=tuple(y.cap_add),
            security=tuple(y.security),
            ulimits=tuple(y.ulimits.items()),
            optional_ulimits=tuple(y.optional_ulimits),
            init=y.init,
        ),
        port=y.port,
        container_port=y.container_port,
        mounts=dict(y.mounts),
        volumes=tuple(y.volumes),
        hand_name=y.by_hand.name,
        hand_restart=y.by_hand.restart,
        holds=Holds(
            tuple(y.holds.roots),
            tuple(y.holds.classes),
            dict(y.holds.env),
            y.holds.manifest,
            tuple(y.holds.forbid),
            tuple(y.holds.allow),
        )
        if y.holds is not None
        else None,
    )
