"""One way to reach the Docker Engine: DOCKER_HOST (a socket, or ssh://), or the usual socket.

docker-py is an extra and is imported here alone, on use.
"""

from __future__ import annotations

import importlib
import os
from typing import Any
from urllib.parse import urlsplit

from qualify.engines.docker_ssh import ForwardedSocket, closing_with, remote_socket
from qualify.errors import EngineError

TIMEOUT_S = 60.0  # of one call; waiting and following have none
DEFAULT = "unix:///var/run/docker.sock"


def docker_py() -> Any:
    """The docker module. Raises EngineError when the extra is not installed."""
    try:
        return importlib.import_module("docker")
    except ImportError as error:
        raise EngineError(
            "This engine runs in a container, and docker-py is not installed.",
            "Install it: pip install 'qualify[docker]'.",
        ) from error


def docker_host() -> str:
    """The address that DOCKER_HOST names, or the usual one."""
    return os.environ.get("DOCKER_HOST") or DEFAULT


def ssh_target(host: str | None = None) -> tuple[str, ...] | None:
    """What `ssh` needs to reach the engine's machine; None when it is this one."""
    parts = urlsplit(host or docker_host())
    if parts.scheme != "ssh" or not parts.hostname:
        return None
    words: list[str] = []
    if parts.username:
        words += ["-l", parts.username]
    if parts.port:
        words += ["-p", str(parts.port)]
    return (*words, parts.hostname)


def connect() -> Any:
    """A client whose engine has answered; close it after use. Raises EngineError.

    Not for use by two threads at once: each takes its own.
    """
    docker = docker_py()
    host = docker_host()
    parts = urlsplit(host)
    if parts.scheme == "tcp" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise EngineError(
            f"DOCKER_HOST is {host}: measured requests go to 127.0.0.1 only.",
            "Write DOCKER_HOST=ssh://USER@HOST: requests then go through a tunnel.",
        )
    target = ssh_target(host)
    socket = ForwardedSocket(target, remote_socket(host)) if target is not None else None
    try:
        if socket is not None:
            local = docker.DockerClient(base_url=f"unix://{socket.path}", timeout=TIMEOUT_S)
            client = closing_with(local, socket)
        else:
            client = docker.from_env(timeout=TIMEOUT_S)
        client.ping()
    except (docker.errors.DockerException, OSError, ValueError) as error:
        if socket is not None:
            socket.close()
        raise EngineError(
            f"No Docker Engine answers at {host}: {_short(error)}.",
            "Start it (systemctl start docker), or set DOCKER_HOST to where one runs; your user "
            "must be in the group docker.",
        ) from error
    return client


def reason(error: Exception) -> str:
    """What the engine itself said, without the client's wrapping."""
    said = getattr(error, "explanation", None) or str(error)
    return str(said).strip()


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
