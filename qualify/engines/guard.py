"""A small parent between the harness and an engine, so that nothing outlives a killed run.

Run as a script (standard library only): `guard.py --grace SECONDS -- COMMAND...`.
The engine gets a process group of its own, standard error as its output, and no input.
The guard stops it (SIGTERM, grace, SIGKILL; then whatever it left behind) when
its own standard input says "stop" or ends, which it does even when the harness is killed with
SIGKILL, or when its parent changes. On Linux it adopts the engine's orphans, so that
daemonised grandchildren are found too, and the engine dies with it should it be killed itself.
It tells the harness one line at a time on standard output: `pid N`, then `exit N`.
N of exit is negative for a signal. Source: prctl(2), PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.25
TURN_S = 0.02
LEAVE_TURNS = 50  # times TURN_S = one second


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the harness is gone; there is nobody to tell
        os.write(1, f"{line}\n".encode())


def _descendants() -> list[int]:
    """Every process below this one; adopted orphans are. Linux only, else none."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state != "Z":
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _sweep(engine: int) -> None:
    """End what the engine left behind, its group and whatever was adopted: a second to leave
    in order, then SIGKILL until nothing is left."""
    _signal_group(engine, signal.SIGTERM)
    for turn in range(100):
        _reap()
        left = _descendants()
        if not left and sys.platform == "linux":
            return
        number = signal.SIGTERM if turn < LEAVE_TURNS else signal.SIGKILL
        if turn in (0, LEAVE_TURNS) or number == signal.SIGKILL:
            for pid in left:
                _signal(pid, number)
        if turn == LEAVE_TURNS:
            _signal_group(engine, signal.SIGKILL)
            if sys.platform != "linux":
                return
        time.sleep(TURN_S)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def _stop(engine: subprocess.Popen[bytes], grace_s: float) -> int:
    _signal(engine.pid, signal.SIGTERM)  # to it alone, as `docker stop` does
    deadline = time.monotonic() + grace_s
    while engine.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0:
            _say("killed")
            _signal_group(engine.pid, signal.SIGKILL)
            return engine.wait()
        # A second line, "kill", cuts the grace short; the end of input does not.
        if _heard(min(0.05, left)) == b"kill":
            deadline = time.monotonic()
    return engine.returncode


_input_ended = False


def _heard(timeout_s: float) -> bytes | None:
    """The last word on standard input within the time, b"" at its end, None for silence."""
    global _input_ended
    if _input_ended:
        time.sleep(timeout_s)
        return None
    ready, _, _ = select.select([0], [], [], timeout_s)
    if not ready:
        return None
    data = os.read(0, 4096)
    if not data:
        _input_ended = True
        return b""
    return data.split()[-1] if data.split() else None


def main(argv: list[str]) -> int:
    grace_s = float(argv[argv.index("--grace") + 1])
    command = argv[argv.index("--") + 1 :]
    parent = os.getppid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Ctrl-C in a terminal is the harness's to handle; it stops us through standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    signal.signal(signal.SIGHUP, lambda *_: asked.append(True))
    me = os.getpid()

    def before_exec() -> None:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != me:  # the guard died before the line above took hold
            os._exit(1)

    try:
        engine = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, preexec_fn=before_exec
        )
    except OSError as error:
        _say(f"failed {error.strerror}: {error.filename or command[0]}")
        return 127
    _say(f"pid {engine.pid}")
    while True:
        code = engine.poll()
        if code is not None:
            break
        if asked or os.getppid() != parent or _heard(POLL_S) is not None:
            code = _stop(engine, grace_s)
            break
    _sweep(engine.pid)
    _say(f"exit {code}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
