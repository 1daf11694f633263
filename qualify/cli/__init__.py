"""The command line: one small file a command, each imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run `qualify` with `argv` (default: the process's own) and exit with its code."""
    import sys

    from qualify.cli.app import run

    sys.exit(run(list(sys.argv[1:] if argv is None else argv)))
