"""At least forty hostile programs, one after the other: each contained, the next unharmed."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from qualify.evals.sandbox.bubblewrap import FIRST_USER, USERS, Bubblewrap
from qualify.evals.sandbox.docker import Docker
from qualify.evals.sandbox.nouns import Job, Limits, Ran, Sandbox
from qualify.evals.sandbox.session import run
from qualify.evals.sandbox.unsafe import Unsafe
from qualify.evals.sandbox.values import decode
from tests.evals.hostile import PROGRAMS, Hostile

SECRET = f"right-answer-{secrets.token_hex(8)}"
# Bounded hard: these programs run on a machine that others use too.
LIMITS = Limits(
    start_s=60.0,
    define_s=1.0,
    call_s=1.0,
    total_s=2.0,
    memory_bytes=256 << 20,
    processes=32,
    files_bytes=8 << 20,
    output_bytes=4 << 20,
)
GOOD = Job("def f(x):\n    return x + 1\n", "f", [["l", 1]], LIMITS)


@pytest.fixture
def one_at_a_time() -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / "qualify-hostile-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def bait() -> Iterator[dict[str, str]]:
    """What a program outside of a cage would find: listeners, a secret file, an environment."""
    abstract = f"qualify-{secrets.token_hex(8)}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as unix,
        tempfile.TemporaryFile() as file,
        pytest.MonkeyPatch.context() as patch,
    ):
        unix.bind("\0" + abstract)
        unix.listen()
        file.write(b"secret")
        file.flush()
        os.set_inheritable(file.fileno(), True)
        patch.setenv("QUALIFY_HELD", "secret")
        yield {"PORTS": repr([server.getsockname()[1]]), "ABSTRACT": repr(abstract)}


def survivors() -> list[str]:
    """Processes of any sandbox's user, and control groups that were left."""
    found = []
    for process in psutil.process_iter(["uids", "name", "cmdline"]):
        uids = process.info["uids"]
        sandboxed = uids and FIRST_USER <= uids.real < FIRST_USER + USERS
        words = process.info["cmdline"] or []
        if sandboxed or "qualify-sandbox" in " ".join(words[:8]):
            found.append(f"{process.pid} {process.info['name']}")
    mine = f"qualify-{os.getpid()}-*"
    return found + [str(p) for p in Path("/sys/fs/cgroup").glob(f"*/{mine}")]


def still_there() -> list[str]:
    """Survivors that stay. Another worker's sandbox may run meanwhile: it ends by itself."""
    left = set(survivors())
    for _ in range(200):
        if not left:
            break
        time.sleep(0.1)
        left &= set(survivors())
    return sorted(left)


def contained(sandbox: Sandbox, program: Hostile, bait: dict[str, str]) -> Ran:
    code = "".join(f"{k} = {v}\n" for k, v in bait.items()) + program.code
    ran = run(sandbox, Job(code, "f", [["l", 1]], LIMITS))
    for call in ran.calls:
        value = decode_or_none(call.value)
        assert value != SECRET, f"{program.name} found the expected answer"
        assert not (isinstance(value, str) and value.startswith("escaped")), value
        assert not value == 2, f"{program.name} passed as the right answer"  # noqa: SIM201
    assert ran.ended in program.ends, f"{program.name}: {ran}"
    assert ran.seconds < (ran.start_s or 0) + LIMITS.total_s + 15.0
    return ran


def decode_or_none(text: str | None) -> object:
    try:
        return None if text is None else decode(json.loads(text))
    except (ValueError, RecursionError):
        return None


def test_there_are_at_least_forty() -> None:
    assert len({p.name for p in PROGRAMS}) == len(PROGRAMS) >= 40


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_in_bubblewrap_it_is_contained_and_the_next_test_is_unharmed(
    program: Hostile, one_at_a_time: None, bait: dict[str, str], bubblewrap: Bubblewrap
) -> None:
    contained(bubblewrap, program, bait)
    assert still_there() == []
    after = run(bubblewrap, GOOD)
    assert (after.ended, after.calls[0].value) == ("done", "2")


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_in_docker_it_is_contained_and_the_next_test_is_unharmed(
    program: Hostile, one_at_a_time: None, bait: dict[str, str], docker_cage: Docker
) -> None:
    contained(docker_cage, program, bait)
    assert docker_cage.left() == []
    after = run(docker_cage, GOOD)
    assert (after.ended, after.calls[0].value) == ("done", "2")


@pytest.mark.parametrize(
    "name",
    [
        "reads what is not its own",
        "connects to the host's loopback",
        "connects to an abstract socket of the host",
        "finds other processes",
    ],
)
def test_the_same_programs_get_out_where_there_is_no_cage(name: str, bait: dict[str, str]) -> None:
    """Harmless ones only: they show that an escape would be seen."""
    program = next(p for p in PROGRAMS if p.name == name)
    code = "".join(f"{k} = {v}\n" for k, v in bait.items()) + program.code
    ran = run(Unsafe(), Job(code, "f", [["l", 1]], LIMITS))
    assert str(decode_or_none(ran.calls[0].value)).startswith("escaped")
