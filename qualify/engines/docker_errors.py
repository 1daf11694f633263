"""What the Docker Engine says when a container cannot be started -> a sentence and a remedy."""

from __future__ import annotations

import re

from qualify.engines.docker_nouns import ContainerPlan
from qualify.errors import EngineError

_KNOWN = (
    (
        r"port is already allocated|address already in use|failed to bind",
        "port {port} is in use there",
        "Stop what listens there (docker ps shows containers that publish it; "
        "`qualify doctor --sweep` ends those of dead runs), or take port: out of the definition.",
    ),
    (
        r"could not select device driver.*gpu|nvidia-container-cli|no known GPU vendor",
        "the Docker Engine cannot give NVIDIA GPUs to a container",
        "Install the NVIDIA container toolkit there, or launch without gpus:.",
    ),
    (
        r"gathering device information while adding custom device",
        "a device that it is to use is missing there",
        "See devices: in the engine definition, and which nodes /dev has.",
    ),
    (
        r"rlimit|RLIMIT",
        "a ulimit of its definition is refused there",
        "The daemon lacks CAP_SYS_RESOURCE: raise its hard limits, or list the name under "
        "optional_ulimits:.",
    ),
    (
        r"executable file not found|exec format error|unable to start container process: exec",
        "the image has no such command, or not for this processor",
        "Compare command: in the definition with the image.",
    ),
    (
        r"bind source path does not exist",
        "a path that it is to see is missing there",
        "The path is looked up on the Docker Engine's machine.",
    ),
)


def explain(said: str, plan: ContainerPlan, engine: str, port: int) -> EngineError:
    """`said` is the engine's own text; it always stands in the error."""
    said = " ".join(said.split())
    for pattern, what, remedy in _KNOWN:
        if re.search(pattern, said, re.IGNORECASE | re.DOTALL):
            return EngineError(
                f"The container of {engine} cannot be started: {what.format(port=port)} ({said}).",
                remedy,
            )
    return EngineError(
        f"The container of {engine} ({plan.image.name}) cannot be started: {said}.",
        "The Docker Engine refused it; `qualify engines command` prints the line to try by hand.",
    )


def refused_ulimits(said: str, plan: ContainerPlan) -> frozenset[str]:
    """The optional ulimits to leave out after this refusal; empty when it was something else."""
    if re.search(r"rlimit", said, re.IGNORECASE):
        return frozenset(plan.settings.optional_ulimits)
    return frozenset()
