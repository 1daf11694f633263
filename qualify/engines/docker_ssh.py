"""The Docker Engine of another machine, through a socket that ssh forwards.

The user's own ssh is used, with its keys, aliases and agent. It runs `cat` over there: when this
process ends, however that is, cat's input ends, and ssh with it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from qualify.errors import EngineError

SOCKET = "/var/run/docker.sock"
READY_S = 30.0


def remote_socket(host: str) -> str:
    """`ssh://HOST/PATH` names the engine's socket there; the usual one if left out."""
    path = urlsplit(host).path
    return path if path not in ("", "/") else SOCKET


class ForwardedSocket:
    """A local socket that ends at the engine's. Raises EngineError when ssh does not come up."""

    def __init__(self, target: tuple[str, ...], remote: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="qualify-ssh-"))
        self.path = self._folder / "docker.sock"
        self._ssh = subprocess.Popen(
            [
                *("ssh", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"),
                *("-L", f"{self.path}:{remote}", *target, "cat"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        deadline = time.monotonic() + READY_S
        while not self.path.exists():
            if self._ssh.poll() is not None or time.monotonic() > deadline:
                said = self._end()
                self.close()
                raise EngineError(
                    f"No Docker Engine answers at {target[-1]}: ssh said {said or 'nothing'!r}.",
                    "Try `ssh HOST docker version` by hand; a key without a question is needed.",
                )
            time.sleep(0.05)

    def _end(self) -> str:
        self._ssh.terminate()
        _, said = self._ssh.communicate()
        return str(said.decode("utf-8", "replace").strip()[:300])

    def close(self) -> None:
        if self._ssh.poll() is None:
            self._end()
        shutil.rmtree(self._folder, ignore_errors=True)


def closing_with(client: Any, socket: ForwardedSocket) -> Any:
    """`client`, whose close() ends the forwarding too."""
    close = client.close

    def both() -> None:
        close()
        socket.close()

    client.close = both
    return client
