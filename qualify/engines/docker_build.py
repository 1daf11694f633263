"""Build the image of an engine whose definition says how; nothing of it is fetched from us."""

from __future__ import annotations

import importlib.util
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from qualify.engines.docker_client import connect, docker_py, reason
from qualify.engines.nouns import EngineSpec
from qualify.errors import EngineError, UsageError

WHEELS = "wheels"
LEFT_OUT = ("__pycache__", ".git", ".mypy_cache", ".ruff_cache")


def build_image(
    spec: EngineSpec,
    *,
    args: Mapping[str, str] | None = None,
    wheels: Path | None = None,
    tag: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> str:
    """Blocking; the new image's id. `args` lie over the definition's own, `wheels` is a folder
    that becomes /wheels in the build. `tell` gets the builder's lines.

    Raises UsageError when the definition describes no build, EngineError when it fails.
    """
    docker = spec.docker
    if docker is None or docker.build is None:
        raise UsageError(
            f"Engine {spec.name} describes no image to build.",
            "Only definitions with build: under launch.docker do; see engines list.",
        )
    name = tag or docker.image.name
    build_args = {**docker.build.args, **(args or {})}
    client = connect()
    try:
        with tempfile.TemporaryFile() as context:
            _pack(spec.folder, docker.build.dockerfile, docker.build.include, wheels, context)
            context.seek(0)
            said = _build(client, context, docker.build.dockerfile, build_args, name, tell)
        if said is not None:
            raise EngineError(
                f"The image {name} cannot be built: {said}.",
                f"See {spec.folder / docker.build.dockerfile} for what it needs.",
            )
        return str(client.images.get(name).id)
    finally:
        client.close()


def _build(
    client: Any,
    context: IO[bytes],
    dockerfile: str,
    args: Mapping[str, str],
    name: str,
    tell: Callable[[str], None],
) -> str | None:
    """None when it was built, else why not. Intermediate containers go in either case."""
    try:
        for event in client.api.build(
            fileobj=context,
            custom_context=True,
            dockerfile=Path(dockerfile).name,
            buildargs=dict(args),
            tag=name,
            network_mode="host",
            rm=True,
            forcerm=True,
            decode=True,
        ):
            if "error" in event:
                return str(event["error"]).strip()
            line = str(event.get("stream") or event.get("status") or "").strip()
            if line and not event.get("progressDetail"):
                tell(line)
    except docker_py().errors.DockerException as error:
        return reason(error)
    return None


def _pack(
    folder: Path,
    dockerfile: str,
    include: tuple[str, ...],
    wheels: Path | None,
    out: IO[bytes],
) -> None:
    """The build's context: the Dockerfile, the included paths, and `wheels/` (maybe empty)."""
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(folder / dockerfile, arcname=Path(dockerfile).name)
        for name in include:
            tar.add(_found(folder, name), arcname=name, filter=_kept)
        empty = tarfile.TarInfo(WHEELS)
        empty.type, empty.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(empty)
        for wheel in sorted(wheels.glob("*.whl")) if wheels is not None else ():
            tar.add(wheel, arcname=f"{WHEELS}/{wheel.name}")


def _found(folder: Path, name: str) -> Path:
    """Beside the definition; where this project is installed, the package of that name."""
    beside = folder / name
    if beside.exists():
        return beside
    module = importlib.util.find_spec(name) if name.isidentifier() else None
    if module is not None and module.origin is not None:
        return Path(module.origin).parent
    raise EngineError(
        f"{beside} belongs into the image and is not there.",
        "Build it from a checkout of the project.",
    )


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """No bytecode and no caches; the same bytes whoever builds."""
    if any(part in LEFT_OUT for part in Path(entry.name).parts):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
