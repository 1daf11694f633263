"""`specdec worker --stdin`: requests over a pipe instead of HTTP."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Any

import click

from specdec.errors import SpecdecError
from specdec.model_options import model_options
from specdec.settings import ServeSettings


@click.command("worker", context_settings={"show_default": True})
@model_options()
@click.option(
    "--stdin",
    "from_stdin",
    is_flag=True,
    required=True,
    help="Read requests from standard input, `MAX_NEW_TOKENS ID ID …` a line.",
)
def worker(from_stdin: bool, **options: Any) -> None:
    """Answer requests from standard input, one at a time, greedily and to their full length.

    Prints a line `qwen_startup=1 …` when it takes requests and a line `qwen_persistent_result=1 …`
    for each. Ends with 0 at the end of input, 1 at a request that it cannot serve, 2 when it could
    not start.
    """
    from specdec.parallel.launch import load_runner
    from specdec.worker import work

    settings = ServeSettings(**options, max_running_requests=1)
    try:
        runner = load_runner(settings.model, settings.runner_options(), log_level="warning")
    except SpecdecError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    try:
        with closing(runner):
            work(runner, settings, sys.stdin, sys.stdout)
    except SpecdecError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
