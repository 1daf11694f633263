"""The errors a user can meet, each a sentence and a remedy, and the exit codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Outcome of a command; see docs/architecture.md, "Outcome and exit code"."""

    QUALIFIED = 0
    NOT_QUALIFIED = 1
    USAGE = 2
    ENGINE_FAILED = 3
    INCONCLUSIVE = 4
    INTERNAL = 70  # a fault of this program, never of a campaign or an engine
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class QualifyError(Exception):
    """Something the user can act on: what is wrong, and what to do about it."""

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  {self.remedy}" if self.remedy else self.message


class UsageError(QualifyError):
    """A wrong command line, an unreadable file, a folder that is no run."""


class CampaignError(UsageError):
    """A campaign file that says something unknown, impossible or ambiguous."""

    def __init__(self, message: str, remedy: str, *, file: str, line: int | None = None) -> None:
        self.file = file
        self.line = line
        where = f"{file}:{line}" if line is not None else file
        super().__init__(f"{where}: {message}", remedy)


class EngineError(QualifyError):
    """The engine could not be started, reached or trusted before anything was judged."""

    exit_code = ExitCode.ENGINE_FAILED


class CellError(QualifyError):
    """One cell cannot be measured; the campaign goes on without it."""

    exit_code = ExitCode.NOT_QUALIFIED
