"""Ctrl-C, SIGKILL and resume: nothing finished is lost or repeated, nothing is left running."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from qualify.engines.owned import MARKER, new_owned, write_owned
from qualify.records.schema import CellEnd
from qualify.records.store import load_run, read_lines
from tests.run.drive import CAMPAIGN, ROOT, SIDES

KILLS = 10


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.run.drive", str(folder), *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[str], phrase: str) -> None:
    assert process.stdout is not None
    said = []
    for text in process.stdout:
        said.append(text)
        if phrase in text:
            return
    raise AssertionError(f"{phrase!r} was never said: {''.join(said)}")


def engines_of(folder: Path) -> list[int]:
    """Living scripted engines whose log or definition lies under `folder`."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            if "tests.scripted_engine" not in line or process.status() == "zombie":
                continue
            if MARKER in process.environ() and _under(process, folder):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def _under(process: psutil.Process, folder: Path) -> bool:
    return any(str(f.path).startswith(str(folder)) for f in process.open_files()) or any(
        str(Path(f"/proc/{process.pid}/fd/{fd}").readlink()).startswith(str(folder))
        for fd in (1, 2)
    )


def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing_running(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "--step-ms", "150")
    wait_for(process, "prose@48/c1: finished")
    time.sleep(0.3)
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert time.monotonic() - asked < 8
    assert process.returncode == 130
    run = load_run(tmp_path / "run")
    assert [c.cell for c in run.cells] == ["prose@48/c1"]
    assert engines_of(tmp_path) == []


def test_a_second_ctrl_c_forces_even_an_engine_that_ignores_sigterm(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "--step-ms", "150", "--ignore-sigterm")
    wait_for(process, "prose@48/c1: finished")
    process.send_signal(signal.SIGINT)
    time.sleep(1.0)
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert time.monotonic() - asked < 4
    assert engines_of(tmp_path) == []


@pytest.mark.timeout(300)
def test_f086_ten_kills_at_random_moments_lose_only_the_cell_in_flight(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    moments = random.Random(20260101)
    total = len(CAMPAIGN) * len(SIDES)
    kills = 0
    while True:
        options = ["--resume"] if (folder / "run.json").exists() else []
        if kills < KILLS:
            options += ["--step-ms", "30"]  # ten kills come before six cells can be done
        process = start(folder, *options)
        if kills < KILLS:
            # A quarter of them come before anything is measured, the rest anywhere after.
            if kills % 4:
                wait_for(process, ": ready after")
            time.sleep(moments.uniform(0.0, 0.8))
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            kills += 1
            continue
        said, _ = process.communicate(timeout=120)
        break
    assert process.returncode == 0, said
    ends = list(read_lines(CellEnd, folder / "cells.jsonl", []))
    finished = Counter(
        (end.launch.rsplit("#", 1)[0], end.cell) for end in ends if end.status == "finished"
    )
    assert len(finished) == total
    assert set(finished.values()) == {1}
    run = load_run(folder)
    assert len(run.cells) == total
    for end in run.cells:
        planned = next(c for c in CAMPAIGN if c.id == end.cell)
        measured = run.measured(end.launch, end.cell)
        assert sorted(r.index for r in measured) == list(range(planned.prompts.count))
        assert all(r.ok for r in measured)
    assert run.superseded  # at least one kill hit a cell in flight
    assert any(end.status == "superseded" for end in ends)  # and its end says so
    assert engines_of(tmp_path) == []


def test_once_the_resumed_run_has_started_no_process_of_the_killed_one_is_left(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    first = start(folder, "--step-ms", "200")
    wait_for(first, ": ready after")
    old = set(engines_of(tmp_path))
    assert old
    first.kill()
    first.communicate()
    second = start(folder, "--resume", "--step-ms", "200")
    wait_for(second, "starting")
    assert not old & set(engines_of(tmp_path))
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=20)
    assert engines_of(tmp_path) == []


def test_a_second_run_in_the_same_folder_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    first = start(tmp_path / "run", "--step-ms", "100")
    wait_for(first, ": ready after")
    second = start(tmp_path / "run", "--resume")
    said, _ = second.communicate(timeout=20)
    assert "another qualify process is writing" in said
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=20)


def test_a_resume_ends_what_the_guard_of_a_killed_run_could_not(tmp_path: Path) -> None:
    """Harness and guard killed in the same moment, and a child in a session of its own."""
    folder = tmp_path / "run"
    first = start(folder, "--step-ms", "200")
    wait_for(first, ": ready after")
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=20)
    dead = dataclasses.replace(new_owned("r1.target-only#1"), harness_pid=2**22 - 1)
    write_owned(folder, dead)
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, MARKER: dead.marker},
        start_new_session=True,
    )
    try:
        second = start(folder, "--resume", "--step-ms", "200")
        wait_for(second, "left by an earlier start")
        assert child.wait(timeout=10) != 0
        second.send_signal(signal.SIGINT)
        second.communicate(timeout=20)
    finally:
        child.kill()
        child.wait()
