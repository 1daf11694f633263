"""Runs one program inside the sandbox. Its source follows that of `values` there.

Nothing in here is trusted by the other side: the program shares this interpreter and can
change all of it. It can only ever send values, and what they should be is not known here.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

from qualify.evals.sandbox.values import decode, pack  # inside: defined above, this line is cut


def main() -> None:
    """Read one job from stdin, then write one line a call: {"t", "i", "v" | "h" | "x"}."""
    job = json.loads(sys.stdin.buffer.readline())
    results = os.dup(1)
    missing = _limit(job["limits"])
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    token = job["token"]

    def send(told: dict[str, Any]) -> None:
        data = (json.dumps({"t": token, **told}) + "\n").encode()
        while data:
            data = data[os.write(results, data) :]

    send({"ready": True, "missing": missing})
    module: dict[str, Any] = {"__name__": "candidate", "__builtins__": __builtins__}
    try:
        exec(compile(job["code"], "<candidate>", "exec"), module)
        function = module[job["entry"]]
    except BaseException as error:
        send({"i": -1, "x": _told(error)})
        os._exit(0)
    send({"defined": True})
    for index, given in enumerate(job["inputs"]):
        began = time.process_time()
        try:
            value = function(*decode(given))
            packed = pack(value)
            used = time.process_time() - began  # a result is part of a call's time: both pay
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # KiB on Linux
            told = {"i": index, "s": used, "m": peak, **packed}
        except BaseException as error:
            told = {"i": index, "x": _told(error)}
        value = packed = None  # type: ignore[assignment]  # let go before the next call
        send(told)
    send({"end": True})
    os._exit(0)


def _told(error: BaseException) -> str:
    try:
        text = str(error)[:300]
    except BaseException:
        text = "(its message raises)"
    return f"{type(error).__name__}: {text}"


def _limit(limits: dict[str, int]) -> list[str]:
    """Drop to an unprivileged user where we are root; set every limit. Names what failed."""
    missing = []
    user = limits.pop("user", None)
    if user is not None and os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    for name, value in limits.items():
        try:
            which = getattr(resource, name)
            hard = resource.getrlimit(which)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (value, value))
        except (AttributeError, ValueError, OSError) as error:
            missing.append(f"{name}: {error}")
    return missing


if __name__ == "__main__":
    main()
