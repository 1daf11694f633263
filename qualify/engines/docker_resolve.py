"""`launch: docker:` + merged arguments -> what one container is to be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qualify.engines.docker_nouns import ContainerPlan, DockerLaunch
from qualify.engines.inner import value_at, with_value
from qualify.engines.spec_schema import ArgValue
from qualify.engines.template import argv_of, fill
from qualify.errors import UsageError

EVERYWHERE = "0.0.0.0"  # inside a network of its own; only 127.0.0.1 is published


def container_plan(
    docker: DockerLaunch, args: Mapping[str, ArgValue], values: Mapping[str, str]
) -> tuple[ContainerPlan, tuple[str, ...], dict[str, ArgValue]]:
    """The container, the command inside it (still with {port} on the host's network), and
    `args` with every mounted path absolute as the host has it. Nothing is looked up."""
    outside: dict[str, ArgValue] = dict(args)
    inside: dict[str, ArgValue] = dict(args)
    within = dict(values)
    volumes: list[str] = []
    for name, place in docker.mounts.items():
        source = values.get("model") if name == "model" else value_at(args, name)
        if source in (None, False, ""):
            continue
        if source is True or ":" in str(source):
            raise UsageError(
                f"{name} is {source}, and a container needs the path of a folder or file there.",
                f"Write {name}: PATH, without a colon in it.",
            )
        path = str(Path(str(source)).expanduser().absolute())
        volumes.append(f"{path}:{place}:ro")
        if name == "model":
            within["model"] = place
        else:
            outside, inside = with_value(outside, name, path), with_value(inside, name, place)
    volumes += [fill(volume, values) for volume in docker.volumes]
    if docker.container_port is not None:
        within |= {"port": str(docker.container_port), "host": EVERYWHERE}
    plan = ContainerPlan(
        image=docker.image,
        settings=docker.settings,
        container_port=docker.container_port,
        volumes=tuple(volumes),
        hand_name=fill(docker.hand_name, values) if docker.hand_name else None,
        hand_restart=docker.hand_restart,
        holds=docker.holds,
    )
    return plan, argv_of(docker.command, inside, within), outside
