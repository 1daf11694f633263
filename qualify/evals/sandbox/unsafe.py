"""No cage at all: a child process with limits. Only where the user asks for it by name."""

from __future__ import annotations

import subprocess
import tempfile

from qualify.evals.sandbox import mounts
from qualify.evals.sandbox.nouns import Limits
from qualify.evals.sandbox.tree import ProcessCage


class Unsafe:
    """The program can read and write what you can, and reach the network."""

    name = "none (unsafe)"

    @property
    def identity(self) -> str:
        return f"{self.name}, {mounts.version()}"

    def user(self) -> int | None:
        return None

    def open(self, limits: Limits, driver: str) -> ProcessCage:
        folder = tempfile.TemporaryDirectory(prefix="qualify-unsafe-")
        process = subprocess.Popen(
            [mounts.interpreter(), "-I", "-S", "-B", "-X", "utf8", "-c", driver],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"HOME": folder.name, "TMPDIR": folder.name},
            cwd=folder.name,
            start_new_session=True,
        )
        return _UnsafeCage(process, limits.memory_bytes, folder)


class _UnsafeCage(ProcessCage):
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        memory_bytes: int,
        folder: tempfile.TemporaryDirectory[str],
    ) -> None:
        super().__init__(process, memory_bytes, None)
        self._folder = folder

    def kill(self, patience_s: float = 0.0) -> int | None:
        status = super().kill(patience_s)
        self._folder.cleanup()
        return status
