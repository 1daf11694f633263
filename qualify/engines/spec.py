"""An engine definition, found by name or path and made of frozen nouns."""

from __future__ import annotations

import difflib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qualify.engines.definition import DefinitionError, read_definition
from qualify.engines.docker_spec import docker_launch
from qualify.engines.nouns import (
    Additions,
    AttachLaunch,
    Constraint,
    EngineSpec,
    FetchRecipe,
    Grace,
    Mode,
    ModelSource,
    ProcessLaunch,
    Profile,
    Rates,
    Validated,
)
from qualify.engines.spec_schema import EngineYaml, ModelYaml
from qualify.engines.template import PLACEHOLDER
from qualify.errors import UsageError
from qualify.paths import engines_dir

PLACEHOLDERS = frozenset(
    {"python", "engine_dir", "data_root", "model", "port", "host", "alias", "args", "mode"}
)


__all__ = ["EngineSpec", "as_json", "engine_names", "load_engine"]


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
    docker = docker_launch(y.launch.docker) if y.launch.docker is not None else None
    if docker is not None:
        named = (docker.hand_name,) if docker.hand_name else ()
        for template in (*docker.command, *docker.env.values(), *docker.volumes, *named):
            _check_placeholders(template, file)
    if y.launch.attach is not None:
        attach = AttachLaunch(y.launch.attach.url)
    return EngineSpec(
        name=y.name,
        about=y.about,
        protocol=y.protocol,
        process=process,
        attach=attach,
        default_launch=y.launch.default
        or ("process" if process is not None else "docker" if docker is not None else "attach"),
        docker=docker,
        harness=Additions(dict(y.harness.args), dict(y.harness.env)),
        model=_model(y.model, file.parent) if y.model is not None else None,
        tokenizer=y.tokenizer,
        alias=y.alias,
        args=dict(y.args),
        env=dict(y.env),
        profiles={
            name: Profile(
                name=name,
                validated=Validated(**dict(p.validated)) if p.validated is not None else None,
                rates=Rates(**dict(p.rates)) if p.rates is not None else None,
                model=_model(p.model, file.parent) if p.model is not None else None,
                modes=tuple(p.modes) if p.modes is not None else None,
                **{k: v for k, v in dict(p).items() if k not in _MADE},
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


_MADE = ("validated", "rates", "model", "modes")


def _model(y: ModelYaml, folder: Path) -> ModelSource:
    if y.fetch is not None:
        return ModelSource(None, FetchRecipe(**dict(y.fetch)))
    if y.local is not None:
        return ModelSource((Path.cwd() / y.local).absolute(), None, y.hub, y.revision)
    assert y.path is not None
    return ModelSource((folder / y.path).resolve(), None, y.hub, y.revision)


def _check_placeholders(template: str, file: Path) -> None:
    for name in PLACEHOLDER.findall(template):
        if name not in PLACEHOLDERS:
            close = difflib.get_close_matches(name, PLACEHOLDERS, n=1)
            raise DefinitionError(
                f"unknown placeholder {{{name}}} in {template!r}",
                f"Did you mean {{{close[0]}}}?" if close else f"Known: {sorted(PLACEHOLDERS)}.",
                file=str(file),
            )


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
