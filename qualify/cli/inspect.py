"""`qualify inspect CHECKPOINT` and `qualify inspect image REF`: what can be known without a
device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from qualify.cli.options import json_option
from qualify.cli.output import console, print_json
from qualify.errors import ExitCode

if TYPE_CHECKING:
    from qualify.inspect.nouns import Inspection

SHOWN = 20


class _Inspect(click.Group):
    """Its first word is a kind of thing, or else the path of a checkpoint."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["checkpoint", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Inspect,
    subcommand_metavar="CHECKPOINT | image REF [OPTIONS]",
    context_settings={"ignore_unknown_options": False},
)
def command() -> None:
    """Look at a checkpoint without loading it, or at an image without running it.

    Exit code 1 where something is wrong, 4 where something could not be judged.
    """


@command.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--target",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The target that this drafter belongs to: layers, widths, vocabulary, RoPE must agree.",
)
@click.option(
    "--kind",
    type=click.Choice(["target", "mtp", "dflash2", "dspark"]),
    help="What it must be; left out, what its config declares.",
)
@click.option("--no-hashes", is_flag=True, help="Do not read whole files to hash them.")
@json_option
def checkpoint(
    checkpoint: Path, target: Path | None, kind: str | None, no_hashes: bool, as_json: bool
) -> int:
    """Headers, shapes, payload, quantisation and agreement with a target."""
    from qualify.inspect.checkpoint import inspect_checkpoint

    found = inspect_checkpoint(checkpoint, kind=kind, target=target, hashes=not no_hashes)
    return _tell(found, as_json)


@command.command()
@click.argument("ref")
@click.option(
    "--engine",
    metavar="NAME",
    help="An engine definition that says what the image must hold (its `image:` part).",
)
@click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="NAME",
    help="A draft class that must be registered.",
)
@click.option(
    "--env",
    "env",
    multiple=True,
    metavar="NAME=VALUE",
    help="An environment default that must be set so.",
)
@click.option(
    "--manifest", metavar="PATH", help="The source manifest inside the image (sha256 lines)."
)
@json_option
def image(
    ref: str,
    engine: str | None,
    classes: tuple[str, ...],
    env: tuple[str, ...],
    manifest: str | None,
    as_json: bool,
) -> int:
    """Draft class, source manifest, environment defaults; no profiler, backup or bytecode."""
    from qualify.inspect.image import inspect_image
    from qualify.inspect.wanted import wanted_of

    return _tell(inspect_image(ref, wanted_of(engine, classes, env, manifest)), as_json)


def _tell(found: Inspection, as_json: bool) -> int:
    code = ExitCode.NOT_QUALIFIED if found.faults else ExitCode.QUALIFIED
    if not found.faults and found.unjudged:
        code = ExitCode.INCONCLUSIVE
    if as_json:
        print_json(found.to_json())
        return code
    out = console()
    out.print(f"{found.subject}: {found.kind}", markup=False, highlight=False, soft_wrap=True)
    for fault in found.faults[:SHOWN]:
        out.print(f"  fail  {fault.sentence}", markup=False, highlight=False, soft_wrap=True)
    if len(found.faults) > SHOWN:
        out.print(f"  ... and {len(found.faults) - SHOWN} more", markup=False)
    for text in found.unjudged:
        out.print(f"  not judged: {text}", markup=False, highlight=False, soft_wrap=True)
    for name, value in found.facts.items():
        if name != "files" and value not in (None, [], {}):
            out.print(f"  {name}: {value}", markup=False, highlight=False, soft_wrap=True)
    files = found.facts.get("files")
    for name, told in (files or {}).items():
        out.print(f"  {told['sha256']}  {name}", markup=False, highlight=False, soft_wrap=True)
    if not found.faults:
        out.print("  nothing is wrong with what was looked at", markup=False)
    return code
