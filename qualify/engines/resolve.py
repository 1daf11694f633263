"""Definition + mode + profile + variant -> the exact command that will be started."""

from __future__ import annotations

import difflib
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualify.engines.definition import DefinitionError
from qualify.engines.nouns import Constraint, EngineSpec, Mode, Profile
from qualify.engines.spec import PLACEHOLDER
from qualify.engines.spec_schema import ArgValue
from qualify.errors import UsageError
from qualify.paths import data_root

Args = dict[str, ArgValue]


@dataclass(frozen=True)
class ResolvedLaunch:
    """Everything that one launch needs. `argv` still holds {port}: see `argv_for`.

    env: only the variables that the definition, the mode, the profile or a variant set.
    args: the merged arguments, variant over mode over profile over engine.
    drafts: most drafts proposed in a step; block: rows one verify step scores; None = unknown.
    """

    engine: str
    protocol: str
    kind: str  # process | attach
    mode: str
    profile: Profile
    drafter: str  # none | model | ngram
    drafts: int | None
    block: int | None
    args: Args
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path | None
    host: str
    port: int | None  # fixed one; None = a free one
    url: str | None  # attach only
    model: str | None
    alias: str | None
    tokenizer: str | None
    module: str | None
    extra: str | None
    no_prefix_cache: bool | None
    stop_grace_s: float
    flush_patience_s: float

    def argv_for(self, port: int) -> tuple[str, ...]:
        """The command with its port filled in."""
        return tuple(part.replace("{port}", str(port)) for part in self.argv)


def resolve(
    spec: EngineSpec,
    mode: str,
    profile: str | None = None,
    args: Args | None = None,
    env: dict[str, str] | None = None,
    model: str | None = None,
    *,
    tokenizer: str | None = None,
    attach_url: str | None = None,
) -> ResolvedLaunch:
    """Lay variant (`args`, `env`) over mode over profile over engine, and check the outcome.

    `model` is a path or a name and overrides the definition's; an existing path is made
    absolute. `attach_url` measures a server that already runs there instead of starting one.
    Raises UsageError for an unknown mode or profile or a missing argument, DefinitionError
    for a combination that the definition forbids. Nothing is fetched or started.
    """
    the_mode = _pick(spec.modes, mode, "mode", spec.name)
    the_profile = _pick(spec.profiles, profile or spec.default_profile, "profile", spec.name)
    merged: Args = {**spec.args, **the_profile.args, **the_mode.args, **(args or {})}
    kind = "attach" if attach_url is not None else spec.default_launch
    if kind == "process":
        _check(spec, the_mode, merged)
    process = spec.process if kind == "process" else None
    path = _model_path(spec, model)
    alias = spec.alias or (Path(path).stem if path else None)
    host = "127.0.0.1"
    values = {
        "python": sys.executable,
        "engine_dir": str(spec.folder),
        "data_root": str(data_root()),
        "host": host,
        "alias": alias or "",
    }
    if path is not None:
        values["model"] = path
    argv: tuple[str, ...] = ()
    env_set: dict[str, str] = {}
    cwd: Path | None = None
    url = attach_url
    if process is not None:
        if any("{model}" in part for part in process.argv) and path is None:
            raise UsageError(
                f"Engine {spec.name} needs a model and its definition names none.",
                "Write model: PATH in the campaign.",
            )
        argv = _argv(process.argv, merged, values)
        layers = {**process.env, **spec.env, **the_profile.env, **the_mode.env, **(env or {})}
        env_set = {k: _fill(v, values) for k, v in layers.items()}
        cwd = Path(_fill(process.cwd, values)) if process.cwd else None
    elif url is None:
        url = spec.attach.url if spec.attach is not None else None
        if url is None:
            raise UsageError(
                f"Engine {spec.name} is one that already runs, and no address is given.",
                "Add --attach URL, or url: under launch.attach in its engine.yaml.",
            )
    return ResolvedLaunch(
        engine=spec.name,
        protocol=spec.protocol,
        kind=kind,
        mode=mode,
        profile=the_profile,
        drafter=the_mode.drafter,
        drafts=_fact(the_mode.drafts, merged),
        block=_fact(the_mode.block, merged),
        args=merged,
        argv=argv,
        env=env_set,
        cwd=cwd,
        host=host,
        port=process.port if process is not None else None,
        url=url.rstrip("/") if url is not None else None,
        model=path,
        alias=alias,
        tokenizer=tokenizer or (path if spec.tokenizer in (None, "model") else spec.tokenizer),
        module=process.module if process is not None else None,
        extra=process.extra if process is not None else None,
        no_prefix_cache=spec.no_prefix_cache,
        stop_grace_s=spec.grace.stop_s,
        flush_patience_s=spec.grace.flush_s,
    )


def command_line(resolved: ResolvedLaunch, *, port: int | None = None) -> str:
    """A line to paste into a shell that starts the same thing by hand."""
    if resolved.kind == "attach":
        return f"# nothing to start: attaches to {resolved.url}"
    argv = resolved.argv_for(port or resolved.port or 30000)
    words = [f"{k}={shlex.quote(v)}" for k, v in sorted(resolved.env.items())]
    words += [shlex.quote(part) for part in argv]
    line = " ".join(words)
    return f"cd {shlex.quote(str(resolved.cwd))} && {line}" if resolved.cwd else line


def _pick(table: dict[str, Any], name: str, what: str, engine: str) -> Any:
    if name in table:
        return table[name]
    close = difflib.get_close_matches(name, list(table), n=1)
    raise UsageError(
        f"Engine {engine} has no {what} {name!r}.",
        (f"Did you mean {close[0]}? " if close else "") + f"It has: {', '.join(table)}.",
    )


def _check(spec: EngineSpec, mode: Mode, merged: Args) -> None:
    for name in mode.requires:
        if merged.get(name) in (None, False, ""):
            raise UsageError(
                f"Mode {mode.name} of {spec.name} needs the argument {name}.",
                f"Make a variant in the campaign: variants: {{NAME: {{mode: {mode.name}, "
                f"args: {{{name}: VALUE}}}}}}.",
            )
    for rule in (*spec.constraints, *mode.constraints):
        if merged.get(rule.arg) is not None:
            _check_rule(spec, mode, rule, merged)


def _check_rule(spec: EngineSpec, mode: Mode, rule: Constraint, merged: Args) -> None:
    found = merged[rule.arg]
    if rule.equals is not None:
        wanted: ArgValue = rule.equals
        said = str(wanted)
    else:
        other = rule.same_as or rule.one_more_than
        assert other is not None
        base = merged.get(other)
        if base is None:
            return
        if rule.one_more_than is not None:
            number = _integer(base)
            wanted = number + 1 if number is not None else base
            said = f"{other} + 1 = {wanted}"
        else:
            wanted = base
            said = f"{other} = {wanted}"
    if str(found) != str(wanted):
        raise DefinitionError(
            f"mode {mode.name}: {rule.arg} is {found}, and it must be {said}: {rule.why}",
            f"Set {rule.arg}: {wanted}, or leave it out.",
            file=str(spec.file),
        )


def _integer(value: ArgValue) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _fact(value: int | str | None, merged: Args) -> int | None:
    return _integer(merged.get(value)) if isinstance(value, str) else value


def _model_path(spec: EngineSpec, model: str | None) -> str | None:
    if model is not None:
        path = Path(model).expanduser()
        return str(path.resolve()) if path.exists() else model
    if spec.model is None:
        return None
    if spec.model.fetch is not None:
        return str(spec.model.fetch.path)
    return str(spec.model.path)


def _fill(template: str, values: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda m: values.get(m[1], m[0]), template)


def _argv(template: tuple[str, ...], merged: Args, values: dict[str, str]) -> tuple[str, ...]:
    flags: list[str] = []
    for name, value in merged.items():
        if value is None or value is False:
            continue
        flags.append(f"--{name}")
        if value is not True:
            flags.append(_fill(str(value), values))
    if "{args}" not in template:
        template = (*template, "{args}")
    argv: list[str] = []
    for part in template:
        argv += flags if part == "{args}" else [_fill(part, values)]
    return tuple(argv)
