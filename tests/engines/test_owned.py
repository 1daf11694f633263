"""What a killed run leaves, and how the next start ends it and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from qualify.engines.owned import MARKER, new_owned, sweep, write_owned
from qualify.engines.process import EngineProcess
from tests.engines.toys import gone_within, processes_with

PY = sys.executable
SLEEP = (PY, "-c", "import time; time.sleep(600)")
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's prctl and /proc")

HARNESS = """
import asyncio, sys, time
from pathlib import Path
from qualify.engines.process import EngineProcess
async def main():
    p = await EngineProcess.start(
        (sys.executable, '-c', sys.argv[2]), env={}, cwd=None, folder=Path(sys.argv[1]),
        launch_id='r1.a#1', grace_s=0.5)
    print(p.owned.marker, p.guard_pid, p.pid, flush=True)
    time.sleep(600)
asyncio.run(main())
"""
FAMILY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
time.sleep(600)
"""


def killed_harness(folder: Path, code: str = FAMILY) -> tuple[str, int, int]:
    """A harness that started `code` and was then killed: marker, guard pid, engine pid."""
    harness = subprocess.Popen(
        [PY, "-c", HARNESS, str(folder), code], stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    marker, guard, engine = harness.stdout.readline().split()
    time.sleep(0.5)
    harness.kill()
    harness.wait()
    harness.stdout.close()
    return marker, int(guard), int(engine)


@linux
def test_nothing_outlives_a_harness_that_is_killed(tmp_path: Path) -> None:
    marker, _, _ = killed_harness(tmp_path)
    assert gone_within(marker, 10)
    swept = sweep(tmp_path)
    assert [(s.launch, s.ended, s.note) for s in swept] == [("r1.a#1", (), "nothing was left")]
    assert not (tmp_path / "owned").exists()


@linux
def test_the_engine_dies_with_its_guard_and_the_next_start_ends_the_rest(tmp_path: Path) -> None:
    # The worst case: harness and guard are killed in the same moment.
    harness = subprocess.Popen(
        [PY, "-c", HARNESS, str(tmp_path), FAMILY], stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    marker, guard, engine = harness.stdout.readline().split()
    time.sleep(0.5)
    os.kill(int(guard), signal.SIGKILL)
    harness.kill()
    harness.wait()
    harness.stdout.close()
    deadline = time.monotonic() + 5
    while psutil.pid_exists(int(engine)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(processes_with(marker)) == 1  # the grandchild, in a session of its own
    (swept,) = sweep(tmp_path, grace_s=1)
    assert len(swept.ended) == 1
    assert processes_with(marker) == []


def test_a_sweep_leaves_a_run_alone_whose_harness_lives(tmp_path: Path) -> None:
    async def run() -> None:
        process = await EngineProcess.start(
            SLEEP, env={}, cwd=None, folder=tmp_path, launch_id="r1.a#1", grace_s=5
        )
        (swept,) = sweep(tmp_path)
        assert swept.ended == ()
        assert "still runs" in swept.note
        assert process.alive()
        await process.stop()

    asyncio.run(run())


def test_a_sweep_ends_only_what_carries_the_marker(tmp_path: Path) -> None:
    mine = subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL)
    other = subprocess.Popen(
        SLEEP, stdout=subprocess.DEVNULL, env={**os.environ, MARKER: "somebody-elses"}
    )
    dead = subprocess.Popen([PY, "-c", ""])
    dead.wait()
    try:
        # An entry that names live processes by pid, as after a reuse of the numbers.
        entry = replace(
            new_owned("r1.a#1"),
            harness_pid=dead.pid,
            harness_started=1.0,
            guard_pid=mine.pid,
            engine_pid=other.pid,
        )
        write_owned(tmp_path, entry)
        (swept,) = sweep(tmp_path, grace_s=0.2)
        assert swept.ended == ()
        assert mine.poll() is None
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def test_an_unreadable_entry_is_named_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "owned").mkdir()
    (tmp_path / "owned" / "x.json").write_text("{half")
    (swept,) = sweep(tmp_path)
    assert "unreadable" in swept.note
