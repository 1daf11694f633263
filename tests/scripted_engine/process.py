"""The scripted engine as a process of its own, for tests that measure against it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

_ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EngineProcess:
    """`with EngineProcess("--dialect", "sglang") as engine:` then engine.url, engine.pid.

    After stop() (or the block) `truth` has one dict for each generation, as
    Generation.line() gives it. Raises RuntimeError when the engine does not come up.
    """

    def __init__(self, *options: str, prefix: tuple[str, ...] = ()) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.truth: list[dict[str, Any]] = []
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "truth.jsonl"
        self._argv = [*prefix, sys.executable, "-m", "tests.scripted_engine"]
        self._argv += ["--port", str(self.port), "--log", str(self._log), *options]
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> EngineProcess:
        self._process = subprocess.Popen(
            self._argv, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if "engine at" not in self._process.stdout.readline():
            _, said = self._process.communicate(timeout=10)
            self._folder.cleanup()
            raise RuntimeError(f"the scripted engine did not start: {said}")
        return self

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._process = None
        if self._log.exists():
            lines = self._log.read_text(encoding="utf-8").split("\n")
            self.truth = [json.loads(line) for line in lines if line]
        self._folder.cleanup()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
