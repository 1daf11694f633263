"""Free ports, and who holds one that is not free."""

from __future__ import annotations

import random
import socket

import psutil

from qualify.errors import EngineError

# Below the range that systems use for outgoing connections, so that none of those takes the
# port between our look and the engine's bind.
LOWEST, HIGHEST = 20000, 31999


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could bind there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on. Raises EngineError when a hundred tries find none."""
    for _ in range(100):
        port = random.SystemRandom().randint(LOWEST, HIGHEST)
        if port_is_free(host, port):
            return port
    raise EngineError(
        f"No free port was found on {host} between {LOWEST} and {HIGHEST}.",
        "Stop some of the servers that listen there.",
    )


def listeners(port: int) -> list[psutil.Process]:
    """Processes that listen on `port`, as far as this user may see them."""
    found: dict[int, psutil.Process] = {}
    for c in psutil.net_connections("tcp"):
        if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port and c.pid:
            try:
                found[c.pid] = psutil.Process(c.pid)
            except psutil.NoSuchProcess:
                continue
    return list(found.values())


def who_listens(port: int) -> str:
    """For an error message: name, pid and command, or that it cannot be seen."""
    told = []
    for process in listeners(port):
        try:
            command = " ".join(process.cmdline())[:120]
            told.append(f"{process.name()} (pid {process.pid}: {command})")
        except psutil.Error:
            told.append(f"pid {process.pid}")
    return ", ".join(told) or "a process that this user may not see"


def claim(host: str, port: int | None) -> int:
    """`port` if it is free, or a free one for None. Raises EngineError when it is taken."""
    if port is None:
        return free_port(host)
    if not port_is_free(host, port):
        raise EngineError(
            f"Port {port} is in use by {who_listens(port)}.",
            "Stop that process, or take `port:` out of the engine definition so that a free "
            "one is chosen.",
        )
    return port
