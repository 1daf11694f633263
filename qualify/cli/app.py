"""The command group and how every command ends: its exit code, or a sentence and a remedy.

Nothing heavy may be imported here: `qualify --help` answers in well under 150 ms.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from qualify import __version__
from qualify.cli.output import any_text_prints
from qualify.errors import ExitCode, QualifyError
from qualify.printable import printable

# name -> (module, what the overview says); the module's `command` is the command itself.
COMMANDS = {
    "run": ("qualify.cli.run", "Measure a campaign and judge it."),
    "eval": ("qualify.cli.eval", "Ask a running server the problems of one evaluation."),
    "plan": ("qualify.cli.plan", "Show what a campaign would send, and how long it takes."),
    "report": ("qualify.cli.report", "Make a run's report again, or show it."),
    "recommend": ("qualify.cli.recommend", "Which mode to serve, from a run."),
    "compare": ("qualify.cli.compare", "Compare runs, like with like."),
    "gate": ("qualify.cli.gate", "Did a run get worse than an earlier one?"),
    "nightly": ("qualify.cli.nightly", "Run, gate and keep campaigns; one exit code."),
    "history": ("qualify.cli.history", "A figure over all runs, with its change points; SQL."),
    "campaign": ("qualify.cli.campaign", "Check a campaign file; print its JSON Schema."),
    "engines": ("qualify.cli.engines", "List engines, show one, print its start command."),
    "inspect": ("qualify.cli.inspect", "Look at a checkpoint or an image; nothing is started."),
    "doctor": ("qualify.cli.doctor", "Is this machine ready, and is anything left running?"),
}


class LazyGroup(click.Group):
    """Imports a command's module when the command is used, not to list it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from qualify.campaign.faults import did_you_mean

            hint = did_you_mean(args[0], list(COMMANDS))
            raise click.UsageError(f"There is no command `{args[0]}`. {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="--debug after any command shows the traceback of an error.",
)
@click.version_option(__version__, prog_name="qualify")
def cli() -> None:
    """Which decode mode should I serve for my workload, on my hardware, and is it right?"""


def run(argv: list[str]) -> int:
    """Run one command line; returns the exit code, having printed any error to stderr."""
    debug = "--debug" in argv
    if debug:
        argv = [a for a in argv if a != "--debug"]
    any_text_prints()
    try:
        return _invoke(argv)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("Interrupted.", "Nothing is left running; `--resume` continues a run.")
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        if debug:
            raise
        error.show()
        return ExitCode.USAGE
    except QualifyError as error:
        if debug:
            raise
        _say(error.message, error.remedy)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has left; a second flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except OSError as error:
        if debug:
            raise
        _say(*_of_system(error))
        return ExitCode.USAGE
    except Exception as error:
        if debug:
            raise
        _say(
            f"qualify itself failed: {type(error).__name__}: {error}",
            "Run it again with --debug and report what it prints.",
        )
        return ExitCode.INTERNAL


def _invoke(argv: list[str]) -> int:
    """Parse and call. Not click's own `main`: it turns a broken pipe into exit code 1."""
    completing = os.environ.get("_QUALIFY_COMPLETE")
    if completing:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "qualify", "_QUALIFY_COMPLETE", completing)
    with cli.make_context("qualify", argv) as context:
        result: Any = cli.invoke(context)
    if sys.stdout is not None:  # it was closed before we started: `>&-`
        sys.stdout.flush()  # a broken pipe shows here rather than while the interpreter ends
    return int(result) if isinstance(result, int) else ExitCode.QUALIFIED


def _of_system(error: OSError) -> tuple[str, str]:
    """A full disk, a path that cannot be written, a folder where a file belongs."""
    what = error.strerror or type(error).__name__
    paths = [str(p) for p in (error.filename2, error.filename) if p is not None]
    return (
        f"{paths[0]}: {what}." if paths else f"{what}.",
        "Look at the path, its permissions and the free space. What was measured is kept: "
        "`--resume` continues a run.",
    )


def _say(sentence: str, remedy: str) -> None:
    click.secho(printable(sentence), fg="red", err=True)
    if remedy:
        click.echo(f"  {printable(remedy)}", err=True)
