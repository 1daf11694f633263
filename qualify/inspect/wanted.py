"""What an image should hold: an engine definition's word, and that of the command line over it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from qualify.engines.docker_nouns import Holds
from qualify.engines.spec import load_engine
from qualify.errors import UsageError


def wanted_of(
    engine: str | None,
    classes: Iterable[str] = (),
    env: Iterable[str] = (),
    manifest: str | None = None,
    roots: Iterable[str] = (),
) -> Holds:
    """Raises UsageError for an unknown engine, or one without a container."""
    found = Holds()
    if engine is not None:
        docker = load_engine(engine).docker
        if docker is None:
            raise UsageError(
                f"Engine {engine} describes no container.", "Leave --engine out, or name another."
            )
        found = docker.holds or found
    pairs = dict(found.env)
    for word in env:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"--env {word} is not NAME=VALUE.", "Write --env NAME=VALUE.")
        pairs[name] = value
    return replace(
        found,
        classes=(*found.classes, *classes),
        env=pairs,
        manifest=manifest if manifest is not None else found.manifest,
        roots=tuple(roots) or found.roots,
    )
