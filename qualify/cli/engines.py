"""`qualify engines list|show|command|build`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qualify.cli.options import json_option
from qualify.cli.output import console, print_json
from qualify.errors import ExitCode, UsageError


@click.group()
def command() -> None:
    """List engines, show one, print its start command, build its image."""


@command.command("list")
@json_option
def list_(as_json: bool) -> int:
    """The engines that come with the project."""
    from qualify.engines.spec import engine_names, load_engine

    specs = [load_engine(name) for name in engine_names()]
    if as_json:
        print_json(
            [
                {
                    "name": s.name,
                    "about": s.about,
                    "protocol": s.protocol,
                    "modes": list(s.modes),
                    "profiles": list(s.profiles),
                }
                for s in specs
            ]
        )
        return ExitCode.QUALIFIED
    from rich.table import Table

    table = Table("engine", "modes", "profiles", "about", box=None, pad_edge=False)
    for spec in specs:
        table.add_row(spec.name, ", ".join(spec.modes), ", ".join(spec.profiles), spec.about or "")
    console().print(table)
    return ExitCode.QUALIFIED


@command.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> int:
    """Everything that an engine's definition says. NAME may be a path to an engine.yaml."""
    from qualify.engines.spec import as_json as spec_json
    from qualify.engines.spec import load_engine

    spec = load_engine(name)
    if as_json:
        print_json(spec_json(spec))
        return ExitCode.QUALIFIED
    out = console()
    out.print(f"[bold]{spec.name}[/]  {spec.about or ''}")
    out.print(f"protocol {spec.protocol}, defined in {spec.file}")
    from rich.table import Table

    columns = ("profile", "context", "pool", "at once", "validated", "about")
    profiles = Table(*columns, box=None, pad_edge=False)
    for p in spec.profiles.values():
        sizes = (p.context_tokens, p.pool_tokens, p.effective_concurrency)
        tried = str(p.validated_concurrency or "?")
        shown = ("?" if s is None else f"{s:,}" for s in sizes)
        profiles.add_row(p.name, *shown, tried, p.about or "")
    modes = Table("mode", "drafter", "needs", "about", box=None, pad_edge=False)
    for m in spec.modes.values():
        modes.add_row(m.name, m.drafter, ", ".join(m.requires), m.about or "")
    out.print(profiles)
    out.print(modes)
    return ExitCode.QUALIFIED


@command.command("command")
@click.argument("name")
@click.option("--mode", required=True, help="A mode that `engines show` lists.")
@click.option("--profile", help="A profile; the engine's default if left out.")
@click.option("--model", help="A model path or name that replaces the definition's.")
@click.option(
    "--launch",
    type=click.Choice(["process", "docker", "attach"]),
    help="The way to start it, where the definition describes more than one.",
)
@click.option(
    "--arg", "args", multiple=True, metavar="NAME=VALUE", help="Set or replace an argument."
)
@json_option
def command_(
    name: str,
    mode: str,
    profile: str | None,
    model: str | None,
    launch: str | None,
    args: tuple[str, ...],
    as_json: bool,
) -> int:
    """The line that starts the same server by hand; for a container, `docker run`."""
    from qualify.engines.resolve import command_line, resolve
    from qualify.engines.spec import load_engine

    own = dict(map(_argument, args))
    resolved = resolve(load_engine(name), mode, profile, own, None, model, launch=launch)
    if as_json:
        print_json(
            {
                "argv": list(resolved.argv),
                "env": resolved.env,
                "cwd": str(resolved.cwd) if resolved.cwd else None,
                "url": resolved.url,
                "added": {"args": resolved.added.args, "env": resolved.added.env},
                "docker_run": command_line(resolved) if resolved.container else None,
            }
        )
    else:
        click.echo(command_line(resolved))
    return ExitCode.QUALIFIED


@command.command()
@click.argument("name")
@click.option("--build-arg", "args", multiple=True, metavar="NAME=VALUE", help="An ARG of it.")
@click.option(
    "--wheels",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder of wheels for a build without a network.",
)
@click.option("--tag", help="Another name than the definition's.")
@json_option
def build(
    name: str, args: tuple[str, ...], wheels: Path | None, tag: str | None, as_json: bool
) -> int:
    """Build an engine's image with its Dockerfile."""
    from qualify.engines.docker_build import build_image
    from qualify.engines.spec import load_engine

    given = dict(map(_build_argument, args))
    built = build_image(
        load_engine(name),
        args=given,
        wheels=wheels,
        tag=tag,
        tell=lambda line: click.echo(line, err=True),
    )
    if as_json:
        print_json({"id": built})
    else:
        click.echo(built)
    return ExitCode.QUALIFIED


def _build_argument(word: str) -> tuple[str, str]:
    name, equals, text = word.partition("=")
    if not equals or not name:
        raise UsageError(f"--build-arg {word} is not NAME=VALUE.", "Write --build-arg BASE=IMAGE.")
    return name, text


def _argument(word: str) -> tuple[str, Any]:
    from qualify.campaign.scalars import Trap, resolve

    name, equals, text = word.partition("=")
    if not equals or not name:
        raise UsageError(f"--arg {word} is not NAME=VALUE.", "Write --arg ctx-size=8192.")
    value = resolve(text)
    return name.lstrip("-"), text if isinstance(value, Trap) else value
