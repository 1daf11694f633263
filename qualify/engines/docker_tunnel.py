"""A container on another machine, spoken to through ssh: requests still go to 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from qualify.engines.ports import free_port
from qualify.errors import EngineError

READY_S = 30.0


@dataclass(frozen=True)
class Tunnel:
    """port: on 127.0.0.1 here; ends at 127.0.0.1 there."""

    port: int
    note: str

    @staticmethod
    @asynccontextmanager
    async def open(target: tuple[str, ...], remote_port: int) -> AsyncIterator[Tunnel]:
        """Raises EngineError when ssh does not come up. The ssh process ends with the block."""
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            *("ssh", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"),
            # `cat` ends with its input, and that with this process, however it ends.
            *("-L", f"127.0.0.1:{port}:127.0.0.1:{remote_port}", *target, "cat"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await _listening(process, port, target[-1])
            note = (
                f"measured through an ssh tunnel to {target[-1]}: every time holds its delay, "
                "and TTFT a round trip"
            )
            yield Tunnel(port, note)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int, host: str) -> None:
    """Until ssh accepts connections here; it does so before anything listens there."""
    for _ in range(int(READY_S / 0.1)):
        if process.returncode is not None:
            assert process.stderr is not None
            said = (await process.stderr.read()).decode("utf-8", "replace").strip()
            raise EngineError(
                f"The ssh tunnel to {host} ended: {said or process.returncode}.",
                "Try `ssh HOST true` by hand; a key without a question is needed.",
            )
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return
    raise EngineError(f"The ssh tunnel to {host} did not come up.", "Try `ssh HOST true`.")
