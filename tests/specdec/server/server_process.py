"""A server in a process of its own: its log, its port, its end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

READY = "The server is fired up and ready to roll!"


class ServerProcess:
    """Started at once; `log` grows as lines come."""

    def __init__(self, command: Sequence[str]) -> None:
        self.log: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parent,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line.rstrip("\n"))

    def wait_for(self, text: str, limit_s: float = 60.0) -> str:
        """The first log line with `text`."""
        deadline = time.monotonic() + limit_s
        while True:
            found = next((line for line in self.log if text in line), None)
            if found is not None:
                return found
            if self._process.poll() is not None:
                self._reader.join(2)
                if not any(text in line for line in self.log):
                    raise AssertionError("the server ended:\n" + "\n".join(self.log))
            assert time.monotonic() < deadline, "\n".join(self.log)
            time.sleep(0.01)

    @property
    def url(self) -> str:
        """Where it listens, from its own log."""
        found = re.search(r"running on (http://\S+)", self.wait_for("running on http://"))
        assert found is not None
        return found.group(1)

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, limit_s: float) -> int:
        """The exit code, which must come within the limit."""
        code = self._process.wait(limit_s)
        self._reader.join(2)
        return code

    def kill(self) -> None:
        """End it in any case."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextmanager
def running(command: Sequence[str]) -> Iterator[ServerProcess]:
    """A server process that does not outlive the block."""
    server = ServerProcess(command)
    try:
        yield server
    finally:
        server.kill()


def scripted(checkpoint: Path, fault: str = "none", drain_s: float = 5.0) -> list[str]:
    """The command of a scripted server."""
    return [sys.executable, "scripted_server.py", str(checkpoint), fault, str(drain_s)]
