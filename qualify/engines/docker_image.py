"""Have an image here and know that it is the one that was pinned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qualify.engines.docker_client import docker_py, reason
from qualify.engines.docker_nouns import ImagePin
from qualify.engines.docker_pull import pull
from qualify.engines.environment import is_secret
from qualify.errors import EngineError

Progress = Callable[[str], None]


@dataclass(frozen=True)
class LocalImage:
    """An image of the engine's own store. digests: REPOSITORY@sha256:…, none for a build."""

    id: str
    name: str
    digests: tuple[str, ...]
    facts: dict[str, Any]


def ensure_image(client: Any, pin: ImagePin, *, progress: Progress | None = None) -> LocalImage:
    """The pinned image, pulled if need be, its digest or id compared with the pin.

    Raises EngineError when it cannot be had, and when the name means another image now.
    """
    found = _lookup(client, pin.by_digest) or _lookup(client, pin.name)
    if found is None or _differs(found, pin):
        stale = found
        found = None
        failure: str | None = None
        if pin.pull == "missing" and pin.id is None and not pin.buildable:
            failure = pull(client, pin.by_digest or pin.name, progress=progress)
            found = _lookup(client, pin.by_digest) or _lookup(client, pin.name)
        if found is None or _differs(found, pin):
            raise _refused(pin, found or stale, failure)
    return found


def local_image(client: Any, pin: ImagePin) -> LocalImage | None:
    """What the pin means in the engine's store now, without pulling; None when it is absent."""
    found = _lookup(client, pin.by_digest) or _lookup(client, pin.name)
    return None if found is None or _differs(found, pin) else found


def _lookup(client: Any, name: str | None) -> LocalImage | None:
    if name is None:
        return None
    errors = docker_py().errors
    try:
        image = client.images.get(name)
    except errors.ImageNotFound:
        return None
    except errors.APIError as error:
        raise EngineError(
            f"The Docker Engine cannot look up {name}: {reason(error)}.", "Check the image's name."
        ) from error
    attrs = image.attrs
    config = attrs.get("Config") or {}
    return LocalImage(
        id=image.id,
        name=name,
        digests=tuple(attrs.get("RepoDigests") or ()),
        facts={
            "created": attrs.get("Created"),
            "size_bytes": attrs.get("Size"),
            "architecture": attrs.get("Architecture"),
            "entrypoint": config.get("Entrypoint"),
            "labels": config.get("Labels"),
            "env": [e for e in config.get("Env") or () if not is_secret(e.partition("=")[0])],
        },
    )


def _differs(image: LocalImage, pin: ImagePin) -> bool:
    if pin.digest is not None:
        return not any(d.rpartition("@")[2] == pin.digest for d in image.digests)
    return pin.id is not None and image.id != pin.id


def _refused(pin: ImagePin, other: LocalImage | None, failure: str | None) -> EngineError:
    if other is not None:
        now = ", ".join(other.digests) or f"no digest of a registry (its id is {other.id})"
        wanted = pin.digest or pin.id
        tail = f"; pulling the pinned one failed: {failure}" if failure else ""
        return EngineError(
            f"{pin.name} is another image now: {now}, and {wanted} is pinned{tail}.",
            f"Fetch the pinned one (docker pull {pin.by_digest or pin.name}), or change the pin "
            "in the engine definition if the new one is meant.",
        )
    if pin.buildable:
        return EngineError(
            f"The image {pin.name} is not here; its engine is built by you.",
            "Build it: qualify engines build ENGINE --help says how.",
        )
    if pin.pull == "never":
        return EngineError(
            f"The image {pin.name} is not here, and its definition never fetches it.",
            f"It is not published. Give your own build that name: docker tag IMAGE {pin.name}.",
        )
    return EngineError(
        f"The image {pin.by_digest or pin.name} cannot be pulled: {failure or 'no reason given'}.",
        "Check the name, the digest and the network; an image that is here already is used as "
        "it is.",
    )
