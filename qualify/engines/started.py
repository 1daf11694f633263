"""What a process and a container have in common once they were started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import psutil

from qualify.engines.exits import EngineExit


class StartedEngine(Protocol):
    """An engine that this harness started and will stop."""

    log_path: Path
    exit: EngineExit | None

    @property
    def pid(self) -> int | None: ...

    @property
    def root_pid(self) -> int | None:
        """Every process of it is below this one; None when that cannot be seen from here."""
        ...

    @property
    def marker(self) -> str:
        """What stands in the environment of all its processes (QUALIFY_LAUNCH)."""
        ...

    def alive(self) -> bool: ...

    def forwards(self, process: psutil.Process) -> bool:
        """Whether `process` listens for it and hands connections on."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the launch's record keeps of it."""
        ...

    async def stop(self) -> EngineExit: ...
