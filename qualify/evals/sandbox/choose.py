"""Which sandbox this machine has, whether it holds, and how fast this machine is now."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace

from qualify.evals.sandbox.bubblewrap import Bubblewrap
from qualify.evals.sandbox.docker import Docker
from qualify.evals.sandbox.nouns import Job, Limits, Ran, Sandbox, SandboxError
from qualify.evals.sandbox.session import run
from qualify.evals.sandbox.unsafe import Unsafe

KINDS = ("auto", "docker", "bubblewrap")

# A fixed piece of work; limits are stated for a machine that does it in REFERENCE_S.
REFERENCE_S = 0.05
_WORK = """
def work():
    total = 0
    for i in range(600_000):
        total += i * i % 7
    return total
"""
_RIGHT = 1199997  # asserted by the self-test: a sandbox that computes wrongly is none
_CHECK = """
import os, socket
def good(x):
    return [x + 1, "good"]
def bad(x):
    while True:
        pass
def shut(x):
    found = []
    try:
        open("/etc/passwd").close(); found.append("reads files")
    except OSError:
        pass
    for place in ("/x", "/usr/lib/x", "/dev/x"):
        try:
            open(place, "w").close(); found.append("writes " + place)
        except OSError:
            pass
    if os.getuid() == 0:
        found.append("is root")
    try:
        found += ["sees the network device " + n for _, n in socket.if_nameindex() if n != "lo"]
    except OSError:
        pass
    return found
"""


@dataclass(frozen=True)
class Chosen:
    """A sandbox that passed its self-test. `note` says what this host cannot enforce."""

    sandbox: Sandbox
    slowdown: float  # this machine's time over the reference's, now, for the same work
    note: str | None = None


def choose(kind: str = "auto", *, image: str | None = None, unsafe: bool = False) -> Chosen:
    """Docker where an engine answers, bubblewrap otherwise; `unsafe` only by name.

    Each is tested with a program that must pass, one that must not, and one that looks for
    what it should not see. Raises SandboxError, naming what each one lacked.
    """
    if unsafe:
        return _tested(Unsafe(), holds=False)
    said: list[str] = []
    for sandbox in _present(kind, image):
        try:
            return _tested(sandbox, holds=True)
        except SandboxError as error:
            said.append(f"{sandbox.name}: {error.message}")
    raise SandboxError(
        "Model-written code runs only in a sandbox, and there is none here"
        f" ({'; '.join(said) or 'no Docker Engine answers and bwrap is not installed'}).",
        "Install one (apt-get install bubblewrap), start a Docker Engine, or say"
        " --unsafe-no-sandbox to run it with your own rights.",
    )


def _present(kind: str, image: str | None) -> list[Sandbox]:
    docker, bubblewrap = Docker(image), Bubblewrap()
    found: list[Sandbox] = []
    if kind in ("auto", "docker") and docker.present:
        found.append(docker)
    if kind in ("auto", "bubblewrap") and bubblewrap.present:
        found.append(bubblewrap)
    return found


def _tested(sandbox: Sandbox, *, holds: bool) -> Chosen:
    good = _one(sandbox, "good", 1)
    if good.ended != "done" or good.calls[0].value != '["l",2,"good"]':
        raise SandboxError(
            f"a program that must pass does not ({_said(good)})", "See docs/evals.md, Sandbox."
        )
    if _one(sandbox, "bad", 1, call_s=0.5).ended != "timeout":
        raise SandboxError("a program without end was not stopped", "See docs/evals.md, Sandbox.")
    seen = _one(sandbox, "shut", 1)
    if holds and (seen.ended != "done" or seen.calls[0].value != '["l"]'):
        raise SandboxError(f"it does not hold: {_said(seen)}", "See docs/evals.md, Sandbox.")
    missing = f"not enforced here: {'; '.join(good.missing)}" if good.missing else None
    return Chosen(sandbox, calibrate(sandbox), missing)


def calibrate(sandbox: Sandbox) -> float:
    """How many times longer than the reference the fixed work takes here and now; at least 1.

    Wall time over the calls of one program, so that load counts as slowness.
    """
    job = Job(_WORK, "work", [["l"]] * 5, Limits(call_s=30.0, total_s=120.0))

    times: list[float] = []
    last = [0.0]

    def took(_: object) -> bool:
        now = time.monotonic()
        times.append(now - last[0])
        last[0] = now
        return True

    last[0] = time.monotonic()
    ran = run(sandbox, job, took)
    if ran.ended != "done" or any(c.value != str(_RIGHT) for c in ran.calls):
        raise SandboxError(f"its calibration did not run ({_said(ran)})", "Try again.")
    return max(1.0, statistics.median(times[1:]) / REFERENCE_S)


def scaled(limits: Limits, slowdown: float) -> Limits:
    """The same limits on a machine that is `slowdown` times slower than the reference."""
    return replace(
        limits,
        start_s=limits.start_s * slowdown,
        define_s=limits.define_s * slowdown,
        call_s=limits.call_s * slowdown,
        total_s=limits.total_s * slowdown,
    )


def _one(sandbox: Sandbox, entry: str, given: int, call_s: float = 10.0) -> Ran:
    limits = Limits(call_s=call_s, memory_bytes=256 << 20)
    return run(sandbox, Job(_CHECK, entry, [["l", given]], limits))


def _said(ran: Ran) -> str:
    last = ran.calls[-1] if ran.calls else None
    value = (last.value or last.error) if last is not None else ""
    return f"{ran.ended} {ran.detail} {value}".strip()
