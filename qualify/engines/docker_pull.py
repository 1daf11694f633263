"""Pull an image and say how far it is, a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from qualify.engines.docker_client import docker_py, reason

EVERY_S = 5.0


def pull(client: Any, name: str, *, progress: Callable[[str], None] | None = None) -> str | None:
    """Blocks until it is here; None, or why it failed.

    `progress` gets a sentence at the start and at most every five seconds.
    """
    tell = progress or (lambda _: None)
    tell(f"pulling {name}")
    bare, at, digest = name.partition("@")
    layers: dict[str, tuple[int, int]] = {}
    told = time.monotonic()
    try:
        # With the tag left out and none given, every tag of the repository would be fetched.
        for event in client.api.pull(
            bare if at else _repository(bare),
            tag=digest if at else _tag(bare),
            stream=True,
            decode=True,
        ):
            if "error" in event:
                return str(event["error"])
            detail = event.get("progressDetail") or {}
            if event.get("status") == "Downloading" and detail.get("total"):
                layers[str(event.get("id"))] = (int(detail["current"]), int(detail["total"]))
            if layers and time.monotonic() - told >= EVERY_S:
                told = time.monotonic()
                tell(f"pulling {name}: {_amount(layers)}")
    except docker_py().errors.DockerException as error:
        return reason(error)
    tell(f"pulled {name}")
    return None


def _amount(layers: dict[str, tuple[int, int]]) -> str:
    done = sum(current for current, _ in layers.values())
    total = sum(total for _, total in layers.values())
    return f"{done / 1e9:.2f} of at least {total / 1e9:.2f} GB"


def _repository(name: str) -> str:
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


def _tag(name: str) -> str:
    return name.rpartition("/")[2].partition(":")[2] or "latest"
