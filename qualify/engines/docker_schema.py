"""The shape of `launch: docker:` in an engine.yaml."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from qualify.engines.strict import Strict

DIGEST = r"^sha256:[0-9a-f]{64}$"


class BuildYaml(Strict):
    """How the user builds the image; see `qualify engines build`."""

    dockerfile: str = "Dockerfile"  # beside the engine.yaml, as is everything in include
    include: list[str] = Field(default_factory=list)
    args: dict[str, str] = Field(default_factory=dict)


class ByHandYaml(Strict):
    """What a person adds who starts the container by hand; qualify does without it."""

    name: str | None = None
    restart: str | None = None


class HoldsYaml(Strict):
    """What the image should hold; `qualify inspect image` and the check `image` look."""

    roots: list[str] = Field(default_factory=list)
    classes: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    manifest: str | None = None
    forbid: list[str] = Field(default_factory=list)
    allow: list[str] = Field(default_factory=list)


class DockerYaml(Strict):
    """One container. command and volumes are templates; see docs/engines.md for every key."""

    image: str
    digest: str | None = Field(default=None, pattern=DIGEST)  # of the registry's manifest
    id: str | None = Field(default=None, pattern=DIGEST)  # of an image that was built here
    pull: Literal["missing", "never"] = "missing"
    build: BuildYaml | None = None
    command: list[str] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    network: Literal["host", "bridge"] = "bridge"
    port: int | None = Field(default=None, gt=0, lt=65536)  # on the host; None = a free one
    container_port: int | None = Field(default=None, gt=0, lt=65536)
    mounts: dict[str, str] = Field(default_factory=dict)  # model or an argument -> where it lies
    volumes: list[str] = Field(default_factory=list)
    devices: list[str] = Field(default_factory=list)
    groups: list[str] = Field(default_factory=list)  # host:NAME = the host's id of that group
    gpus: Literal["all", "available"] | int | list[str] | None = None
    ipc: str | None = None
    shm: str | None = Field(default=None, pattern=r"^[0-9]+[bkmg]?$")
    memory: str | None = Field(default=None, pattern=r"^[0-9]+[bkmg]?$")
    cap_add: list[str] = Field(default_factory=list)
    security: list[str] = Field(default_factory=list)
    ulimits: dict[str, int] = Field(default_factory=dict)
    optional_ulimits: list[str] = Field(default_factory=list)  # left out where a host refuses
    init: bool = False
    by_hand: ByHandYaml = ByHandYaml()
    holds: HoldsYaml | None = None

    @model_validator(mode="after")
    def fits_together(self) -> DockerYaml:
        if self.digest is not None and self.id is not None:
            raise ValueError("give digest: (of a registry) or id: (of a local build), not both")
        if self.network == "bridge" and self.container_port is None:
            raise ValueError("network: bridge needs container_port:, the port inside")
        if self.network == "host" and self.container_port is not None:
            raise ValueError("network: host has no container_port:; write {port} in command:")
        unknown = set(self.optional_ulimits) - set(self.ulimits)
        if unknown:
            raise ValueError(f"optional_ulimits: {sorted(unknown)} are not among ulimits:")
        return self
