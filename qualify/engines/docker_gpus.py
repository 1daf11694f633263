"""`gpus: available`: NVIDIA's where the Docker Engine can give them, else none, with a note."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qualify.engines.docker_line import AVAILABLE
from qualify.engines.docker_nouns import ContainerPlan


def with_gpus(client: Any, plan: ContainerPlan) -> tuple[ContainerPlan, tuple[str, ...]]:
    """The plan with `available` decided, and what to note of it."""
    if plan.settings.gpus != AVAILABLE:
        return plan, ()
    found = gives_gpus(client.info())
    settings = replace(plan.settings, gpus="all" if found else None)
    note = "GPUs: all" if found else "GPUs: none, the Docker Engine has no NVIDIA runtime"
    return replace(plan, settings=settings), (note,)


def gives_gpus(info: dict[str, Any]) -> bool:
    """Whether this engine knows how to give a container NVIDIA's GPUs."""
    runtimes = info.get("Runtimes") or {}
    devices = info.get("DiscoveredDevices") or ()
    return "nvidia" in runtimes or any("nvidia" in str(d.get("ID", "")) for d in devices)
