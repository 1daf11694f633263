"""A container as a definition describes it, and as one launch will have it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ImagePin:
    """Which image, and what it must turn out to be.

    digest: of the registry's manifest (RepoDigests); id: of an image that was built here.
    Both None: whatever the name means now, which is then written down.
    """

    name: str
    digest: str | None = None
    id: str | None = None
    pull: str = "missing"  # missing | never
    buildable: bool = False  # the definition says how the user builds it

    @property
    def repository(self) -> str:
        """The name without tag or digest; a colon before the last slash is a port."""
        bare = self.name.partition("@")[0]
        head, slash, last = bare.rpartition("/")
        return head + slash + last.partition(":")[0]

    @property
    def by_digest(self) -> str | None:
        return f"{self.repository}@{self.digest}" if self.digest else None


@dataclass(frozen=True)
class BuildRecipe:
    """Paths are relative to the definition's folder."""

    dockerfile: str
    include: tuple[str, ...]
    args: dict[str, str]


@dataclass(frozen=True)
class ContainerSettings:
    """Everything of `docker run` but image, command, environment, ports and mounts."""

    network: str  # host | bridge
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()  # host:NAME = the host's id of that group
    gpus: str | int | tuple[str, ...] | None = None  # all, available, a count, or ids
    ipc: str | None = None
    shm_bytes: int | None = None
    memory_bytes: int | None = None
    cap_add: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    ulimits: tuple[tuple[str, int], ...] = ()
    optional_ulimits: tuple[str, ...] = ()
    init: bool = False


@dataclass(frozen=True)
class Holds:
    """What an image should hold, seen without running it.

    roots: folders of the engine's own sources (none: PYTHONPATH and the working directory);
    classes: model classes that must be registered; manifest: its source manifest's path, or
    name; forbid and allow: patterns of files that must not, or may, lie below the roots.
    """

    roots: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    manifest: str | None = None
    forbid: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()


@dataclass(frozen=True)
class DockerLaunch:
    """`launch: docker:`. command, env, volumes and hand_name are templates.

    mounts: `model` or the name of an argument that holds a path of the host (ARG.KEY where it
    stands in an argument's JSON) -> where that path lies, read-only, inside; the argument is
    then written with the inner path.
    """

    image: ImagePin
    build: BuildRecipe | None
    command: tuple[str, ...]
    env: dict[str, str]
    settings: ContainerSettings
    port: int | None
    container_port: int | None
    mounts: dict[str, str]
    volumes: tuple[str, ...]
    hand_name: str | None
    hand_restart: str | None
    holds: Holds | None = None


@dataclass(frozen=True)
class ContainerPlan:
    """One launch's container, but for its command, environment and port on the host.

    volumes: HOST:INSIDE[:ro] with absolute host paths.
    """

    image: ImagePin
    settings: ContainerSettings
    container_port: int | None  # None = the host's network: the port is the host's
    volumes: tuple[str, ...]
    hand_name: str | None = None
    hand_restart: str | None = None
    holds: Holds | None = None


def size_bytes(text: str) -> int:
    """`64g`, `512m`, `4096` -> bytes, as Docker reads them (powers of 1,024)."""
    unit = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(text[-1])
    return int(text[:-1]) * unit if unit is not None else int(text)
