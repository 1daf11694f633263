"""Starting, watching and ending real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from qualify.engines.exits import EngineExit
from qualify.engines.ports import claim, free_port
from qualify.engines.process import EngineProcess
from qualify.engines.server import launch
from qualify.errors import EngineError
from tests.engines.toys import gone_within, processes_with, toy

PY = sys.executable
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's prctl and /proc")


async def started(folder: Path, *argv: str, grace_s: float = 5.0) -> EngineProcess:
    return await EngineProcess.start(
        argv, env={}, cwd=None, folder=folder, launch_id="r1.a#1", grace_s=grace_s
    )


def python(code: str) -> tuple[str, ...]:
    return (PY, "-u", "-c", textwrap.dedent(code))


SLEEP = python("import time; print('up', flush=True); time.sleep(600)")
DEAF = python(
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); "
    "time.sleep(600)"
)


async def until_log(process: EngineProcess, text: str) -> None:
    for _ in range(200):
        if text in process.log_path.read_text():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{text!r} never came; log: {process.log_path.read_text()!r}")


def test_output_of_both_kinds_lands_in_the_launchs_log(tmp_path: Path) -> None:
    async def run() -> None:
        code = "import sys; print('to out'); print('to err', file=sys.stderr); sys.exit(7)"
        process = await started(tmp_path, *python(code))
        assert await process.wait() == EngineExit(7, None)
        assert process.log_path == tmp_path / "engine-r1.a#1.log"
        assert {"to out", "to err"} <= set(process.log_path.read_text().split("\n"))
        await process.stop()

    asyncio.run(run())


def test_a_second_launch_with_the_same_log_appends(tmp_path: Path) -> None:
    async def run() -> None:
        for word in ("one", "two"):
            process = await started(tmp_path, *python(f"print({word!r})"))
            await process.wait()
            await process.stop()
        assert (tmp_path / "engine-r1.a#1.log").read_text() == "one\ntwo\n"

    asyncio.run(run())


def test_much_output_never_blocks_the_engine(tmp_path: Path) -> None:
    async def run() -> None:
        process = await started(tmp_path, *python("print('x' * 20_000_000)"))
        assert (await asyncio.wait_for(process.wait(), 20)).code == 0
        assert process.log_path.stat().st_size == 20_000_001
        await process.stop()

    asyncio.run(run())


def test_death_by_a_signal_is_told_by_its_name(tmp_path: Path) -> None:
    async def run() -> None:
        process = await started(tmp_path, *python("import os; os.kill(os.getpid(), 11)"))
        assert await process.wait() == EngineExit(None, "SIGSEGV")
        await process.stop()

    asyncio.run(run())


def test_an_engine_that_heeds_sigterm_ends_with_its_own_code(tmp_path: Path) -> None:
    async def run() -> None:
        code = """
            import signal, sys, time
            signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0)))
            print('up')
            time.sleep(600)
        """
        process = await started(tmp_path, *python(code))
        await until_log(process, "up")
        assert await process.stop() == EngineExit(0, None)
        assert "bye" in process.log_path.read_text()

    asyncio.run(run())


def test_an_engine_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    async def run() -> None:
        process = await started(tmp_path, *DEAF, grace_s=0.5)
        await until_log(process, "up")
        began = time.monotonic()
        assert await process.stop() == EngineExit(None, "SIGKILL", forced=True)
        assert 0.4 < time.monotonic() - began < 5

    asyncio.run(run())


def test_giving_up_the_wait_kills_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        process = await started(tmp_path, *DEAF, grace_s=60)
        await until_log(process, "up")
        stopping = asyncio.create_task(process.stop())
        await asyncio.sleep(0.3)
        began = time.monotonic()
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert time.monotonic() - began < 5
        assert process.exit == EngineExit(None, "SIGKILL", forced=True)

    asyncio.run(run())


def test_stopping_twice_or_after_the_end_is_harmless(tmp_path: Path) -> None:
    async def run() -> None:
        process = await started(tmp_path, *python("pass"))
        await process.wait()
        assert await process.stop() == await process.stop() == EngineExit(0, None)

    asyncio.run(run())


def test_a_command_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(EngineError, match="/no/such/engine"):
            await started(tmp_path, "/no/such/engine")
        assert not (tmp_path / "owned").exists()

    asyncio.run(run())


def test_a_working_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(EngineError, match="cannot be started in"):
            await EngineProcess.start(
                SLEEP, env={}, cwd=tmp_path / "no", folder=tmp_path, launch_id="a", grace_s=1
            )

    asyncio.run(run())


@linux
def test_a_grandchild_in_a_session_of_its_own_goes_with_the_engine(tmp_path: Path) -> None:
    async def run() -> None:
        async with launch(toy(tmp_path, "--daemon"), tmp_path, "r1.a#1") as server:
            assert server.process is not None
            marker = server.process.owned.marker
            for _ in range(100):
                if len(processes_with(marker)) >= 3:  # guard, engine, its daemon
                    break
                await asyncio.sleep(0.05)
            assert len(processes_with(marker)) >= 3
        assert processes_with(marker) == []
        assert not (tmp_path / "owned").exists()

    asyncio.run(run())


@linux
def test_grandchildren_of_an_engine_that_crashed_go_too(tmp_path: Path) -> None:
    async def run() -> None:
        code = """
            import os, subprocess, sys
            subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
            os.kill(os.getpid(), 9)
        """
        process = await started(tmp_path, *python(code))
        assert (await asyncio.wait_for(process.wait(), 10)).signal == "SIGKILL"
        assert processes_with(process.owned.marker) == []
        await process.stop()

    asyncio.run(run())


def test_a_fixed_port_that_is_taken_is_refused_with_who_holds_it(tmp_path: Path) -> None:
    port = free_port()
    code = (
        f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); "
        "print('up', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([PY, "-c", code], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(EngineError, match=rf"Port {port} is in use by .*pid {holder.pid}"):
            claim("127.0.0.1", port)

        async def run() -> None:
            async with launch(toy(tmp_path, port=port), tmp_path, "a"):
                raise AssertionError("it was started all the same")

        with pytest.raises(EngineError, match=f"Port {port} is in use"):
            asyncio.run(run())
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


def test_the_engine_gets_the_environment_of_its_definition_and_no_input(tmp_path: Path) -> None:
    async def run() -> None:
        code = "import os, sys; print(os.environ['ONLY_HERE'], repr(sys.stdin.read()))"
        process = await EngineProcess.start(
            python(code),
            env={"ONLY_HERE": "yes"},
            cwd=tmp_path,
            folder=tmp_path,
            launch_id="a",
            grace_s=1,
        )
        await process.wait()
        await process.stop()
        assert process.log_path.read_text() == "yes ''\n"

    asyncio.run(run())


@linux
def test_an_engine_whose_guard_is_killed_counts_as_ended(tmp_path: Path) -> None:
    async def run() -> None:
        process = await started(tmp_path, *SLEEP)
        await until_log(process, "up")
        os.kill(process.guard_pid, signal.SIGKILL)
        ended = await asyncio.wait_for(process.wait(), 10)
        assert not process.alive()
        assert str(ended) == "an unknown exit"
        assert gone_within(process.owned.marker, 5)
        await process.stop()

    asyncio.run(run())


@linux
def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        code = f"import time; time.sleep(600)  # {tmp_path}"
        starting = asyncio.create_task(started(tmp_path, *python(code)))
        await asyncio.sleep(0.02)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert gone_within(str(tmp_path), 5)

    asyncio.run(run())
