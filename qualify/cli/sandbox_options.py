"""The options of commands that run model-written code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from qualify.evals.code import Cage

F = TypeVar("F", bound=Callable[..., Any])


def sandbox_options(function: F) -> F:
    """--sandbox, --sandbox-image, --unsafe-no-sandbox; read them with `cage_of`."""
    function = click.option(
        "--unsafe-no-sandbox",
        is_flag=True,
        help="Run model-written code with your own rights, on this machine, unconfined.",
    )(function)
    function = click.option(
        "--sandbox-image",
        metavar="IMAGE",
        help="A local image whose python3 runs the programs, in place of this Python.",
    )(function)
    return click.option(
        "--sandbox",
        type=click.Choice(["auto", "docker", "bubblewrap"]),
        default="auto",
        show_default=True,
        help="Where model-written code runs: Docker where an engine answers, else bubblewrap.",
    )(function)


def cage_of(sandbox: str, sandbox_image: str | None, unsafe_no_sandbox: bool) -> Cage:
    from qualify.evals.code import Cage

    if sandbox_image is not None and sandbox == "bubblewrap":
        raise click.UsageError("--sandbox-image needs Docker, not bubblewrap.")
    return Cage(
        "docker" if sandbox_image is not None else sandbox, sandbox_image, unsafe_no_sandbox
    )
