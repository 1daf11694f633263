"""Definition + mode + profile + variant -> the exact command that will be started."""

from __future__ import annotations

import difflib
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from qualify.engines.address import base_url
from qualify.engines.definition import DefinitionError
from qualify.engines.docker_line import run_line
from qualify.engines.docker_nouns import ContainerPlan, ImagePin
from qualify.engines.docker_resolve import container_plan
from qualify.engines.inner import value_at
from qualify.engines.nouns import Additions, Constraint, EngineSpec, Mode, Profile
from qualify.engines.spec_schema import ArgValue
from qualify.engines.template import argv_of, fill
from qualify.errors import UsageError
from qualify.paths import data_root

Args = dict[str, ArgValue]


@dataclass(frozen=True)
class ResolvedLaunch:
    """Everything that one launch needs. `argv` still holds {port}: see `argv_for`.

    env: only the variables that the definition, the mode, the profile or a variant set.
    args: the merged arguments, variant over mode over profile over engine over harness.
    added: what of args and env the harness adds for measuring. container: docker only; argv is
    then the command inside it.
    drafts: most drafts proposed in a step; block: rows one verify step scores; None = unknown.
    """

    engine: str
    protocol: str
    kind: str  # process | docker | attach
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
    api: Literal["completions", "chat"] = "completions"  # which route a plain OpenAI server gets
    container: ContainerPlan | None = None
    added: Additions = field(default_factory=Additions)

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
    launch: str | None = None,
) -> ResolvedLaunch:
    """Lay variant (`args`, `env`) over mode over profile over engine, and check the outcome.

    `model` is a path or a name and overrides the definition's; an existing path is made
    absolute. `attach_url` measures a server that already runs there instead of starting one;
    `launch` (process, docker, attach) replaces the definition's default way to start it.
    Raises UsageError for an unknown mode or profile or a missing argument, DefinitionError
    for a combination that the definition forbids. Nothing is fetched or started.
    """
    the_mode = _pick(spec.modes, mode, "mode", spec.name)
    the_profile = _pick(spec.profiles, profile or spec.default_profile, "profile", spec.name)
    if the_profile.modes is not None and mode not in the_profile.modes:
        raise UsageError(
            f"Profile {the_profile.name} of {spec.name} is not for mode {mode}.",
            f"It is for: {', '.join(the_profile.modes)}.",
        )
    stated: Args = {**spec.args, **the_profile.args, **the_mode.args}
    places = {"engine_dir": str(spec.folder), "data_root": str(data_root())}
    # What a definition says of its own files is known from here on by where they are.
    stated = {k: fill(v, places) if isinstance(v, str) else v for k, v in stated.items()}
    own: Args = {**stated, **(args or {})}
    merged: Args = {**spec.harness.args, **own}
    kind = _kind(spec, launch, attach_url)
    if kind != "attach":
        _check(spec, the_mode, merged)
    process = spec.process if kind == "process" else None
    docker = spec.docker if kind == "docker" else None
    path = _model_path(spec, the_profile, model)
    alias = spec.alias or (Path(path).stem if path else None)
    host = "127.0.0.1"
    values = {
        "python": sys.executable,
        **places,
        "host": host,
        "alias": alias or "",
        "mode": mode,
    }
    if path is not None:
        values["model"] = path
    template = process.argv if process is not None else docker.command if docker is not None else ()
    if any("{model}" in part for part in template) and path is None:
        raise UsageError(
            f"Engine {spec.name} needs a model and its definition names none.",
            "Write model: PATH in the campaign; after `engines command`, --model PATH.",
        )
    argv: tuple[str, ...] = ()
    own_env = {**spec.env, **the_profile.env, **the_mode.env, **(env or {})}
    cwd: Path | None = None
    container: ContainerPlan | None = None
    url = attach_url
    if process is not None:
        argv = argv_of(process.argv, merged, values)
        own_env = {**process.env, **own_env}
        cwd = Path(fill(process.cwd, values)) if process.cwd else None
    elif docker is not None:
        if the_profile.image is not None:
            own_image = ImagePin(the_profile.image, pull="never")
            docker = replace(docker, image=own_image, build=None)
        container, argv, merged = container_plan(docker, merged, values)
        own_env = {**docker.env, **own_env}
    elif url is None:
        url = spec.attach.url if spec.attach is not None else None
        if url is None:
            raise UsageError(
                f"Engine {spec.name} is one that already runs, and no address is given.",
                "Add --attach URL, or url: under launch.attach in its engine.yaml.",
            )
    if url is not None:
        url = base_url(url)
    env_set = {k: fill(v, values) for k, v in {**spec.harness.env, **own_env}.items()}
    added = Additions(
        {k: v for k, v in spec.harness.args.items() if k not in own},
        {k: v for k, v in spec.harness.env.items() if k not in own_env},
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
        env=env_set if kind != "attach" else {},
        cwd=cwd,
        host=host,
        port=process.port if process is not None else docker.port if docker is not None else None,
        url=url,
        model=path,
        alias=alias,
        tokenizer=tokenizer or (path if spec.tokenizer in (None, "model") else spec.tokenizer),
        module=process.module if process is not None else None,
        extra=process.extra if process is not None else None,
        no_prefix_cache=spec.no_prefix_cache,
        stop_grace_s=spec.grace.stop_s,
        flush_patience_s=spec.grace.flush_s,
        container=container,
        added=added,
    )


def _kind(spec: EngineSpec, launch: str | None, attach_url: str | None) -> str:
    if attach_url is not None:
        return "attach"
    described = [k for k in ("process", "docker", "attach") if getattr(spec, k) is not None]
    if launch is not None and launch not in described:
        raise UsageError(
            f"Engine {spec.name} describes no launch by {launch}.",
            f"It describes: {', '.join(described)}.",
        )
    return launch or spec.default_launch


def command_line(resolved: ResolvedLaunch, *, port: int | None = None) -> str:
    """A line to paste into a shell that starts the same thing by hand."""
    if resolved.kind == "attach":
        return f"# nothing to start: attaches to {resolved.url}"
    if resolved.container is not None:
        return run_line(resolved.container, resolved.argv, resolved.env, resolved.added, port)
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
        if value_at(merged, name) in (None, False, ""):
            raise UsageError(
                f"Mode {mode.name} of {spec.name} needs the argument {name}.",
                f"Make a variant in the campaign: variants: {{NAME: {{mode: {mode.name}, "
                f"args: {{{name}: VALUE}}}}}}; after `engines command`, --arg {name}=VALUE.",
            )
    for rule in (*spec.constraints, *mode.constraints):
        if value_at(merged, rule.arg) is not None:
            _check_rule(spec, mode, rule, merged)


def _check_rule(spec: EngineSpec, mode: Mode, rule: Constraint, merged: Args) -> None:
    found = value_at(merged, rule.arg)
    if rule.equals is not None:
        wanted: ArgValue = rule.equals
        said = str(wanted)
    else:
        other = rule.same_as or rule.one_more_than
        assert other is not None
        base = value_at(merged, other)
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


def _model_path(spec: EngineSpec, profile: Profile, model: str | None) -> str | None:
    if model is not None:
        path = Path(model).expanduser()
        return str(path.resolve()) if path.exists() else model
    source = profile.model or spec.model
    if source is None:
        return None
    return str(source.fetch.path if source.fetch is not None else source.path)
