"""The toy server as an engine in a container, on the host's network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from qualify.engines.docker_create import LABEL
from qualify.engines.resolve import ResolvedLaunch, resolve
from qualify.engines.spec import load_engine
from tests.engines.docker.conftest import BASE

TOY = Path(__file__).parents[1] / "toy_server.py"


def boxed(
    folder: Path, *flags: str, stop_s: float = 5.0, docker: dict[str, Any] | None = None
) -> ResolvedLaunch:
    """`flags` go to the toy, `docker` lies over its `launch: docker:`."""
    command = ["python3", "/toy/toy_server.py", "--port", "{port}", "--alias", "{alias}"]
    launch: dict[str, Any] = {
        "image": BASE,
        "pull": "never",
        "network": "host",
        "command": [*command, *flags],
        "volumes": [f"{TOY.parent}:/toy:ro"],
        **(docker or {}),
    }
    definition = {
        "name": "boxed-toy",
        "protocol": "llamacpp",
        "launch": {"docker": launch},
        "alias": "toy-model",
        "modes": {"target-only": {"drafter": "none"}},
        "grace": {"stop_s": stop_s},
    }
    folder.mkdir(exist_ok=True)
    file = folder / "engine.yaml"
    file.write_text(yaml.safe_dump(definition))
    return resolve(load_engine(file), "target-only")


def left(client: Any, folder: Path) -> list[str]:
    """Names of containers, in whatever state, that runs in `folder` have left."""
    wanted = {"label": f"{LABEL}folder={folder.resolve()}"}
    return [c.name for c in client.containers.list(all=True, filters=wanted)]
