"""What goes into a sandbox and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from qualify.errors import UsageError

Ended = Literal["done", "stopped", "timeout", "memory", "output", "crashed", "exited", "error"]


class SandboxError(UsageError):
    """There is no sandbox here, or it does not hold: nothing is scored."""


@dataclass(frozen=True)
class Limits:
    """Of one program. Seconds are of wall time at the calibrated speed; see `calibrate`.

    memory_bytes bounds each process's address space and, together, all of them; output_bytes
    what may come back; files_bytes the private temporary folder.
    """

    start_s: float = 30.0  # until the program has been read, in a sandbox that is starting
    define_s: float = 10.0  # running the module itself
    call_s: float = 10.0  # each call
    total_s: float = 60.0
    memory_bytes: int = 1 << 30
    processes: int = 32
    files_bytes: int = 16 << 20
    output_bytes: int = 64 << 20
    open_files: int = 64

    @property
    def rlimits(self) -> dict[str, int]:
        """What the program's own process is held to; children inherit it."""
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_FSIZE": self.files_bytes,
            "RLIMIT_CPU": int(self.define_s + self.total_s) + 2,
            "RLIMIT_AS": self.memory_bytes,
        }


@dataclass(frozen=True)
class Job:
    """A program, the function to call, and the encoded arguments of each call."""

    code: str
    entry: str
    inputs: Sequence[Any]
    limits: Limits = field(default_factory=Limits)
    call_s: Sequence[float] | None = None  # the limit of each call, where they differ


@dataclass(frozen=True)
class Call:
    """What one call came to: a JSON text of the value, a digest of it, or an error."""

    index: int
    value: str | None = None
    digest: str | None = None
    error: str | None = None
    cpu_s: float | None = None  # as the program's side says it: only references are believed
    peak_bytes: int | None = None  # the same


@dataclass(frozen=True)
class Ran:
    """How a program ended. calls has those that came back, in order; `ended` is `done` only
    when every call came back, `stopped` when `accept` said no."""

    calls: tuple[Call, ...]
    ended: Ended
    detail: str
    seconds: float
    start_s: float | None  # until the sandbox was ready
    missing: tuple[str, ...] = ()  # limits that the host refused
    peak_bytes: int | None = None


Accept = Callable[[Call], bool]


class Cage(Protocol):
    """A started sandbox: pipes to the driver, and the end of everything in it."""

    def write(self, data: bytes) -> None: ...

    def fileno(self) -> int:
        """The read end of the program's results."""
        ...

    def over_memory(self) -> bool:
        """Whether all processes together passed the limit, or the kernel killed one for it."""
        ...

    def peak_bytes(self) -> int | None: ...

    def kill(self, patience_s: float = 0.0) -> int | None:
        """End every process, wait, clean up; the driver's exit status where it is known.

        `patience_s`: how long it may take to end by itself first, so that its own status is
        told and not that of the kill.
        """
        ...


class Sandbox(Protocol):
    """One way to cage a program."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """What of it may decide a score: its kind and the Python that runs programs."""
        ...

    def open(self, limits: Limits, driver: str) -> Cage:
        """Start the driver's source in a fresh cage. Raises SandboxError."""
        ...

    def user(self) -> int | None:
        """The user id that the driver drops to; None where it is unprivileged already."""
        ...
