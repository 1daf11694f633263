"""One program from start to end: its calls as they come back, its time, its death."""

from __future__ import annotations

import inspect
import json
import os
import secrets
import selectors
import threading
import time
from typing import Any

from qualify.evals.sandbox import driver, values
from qualify.evals.sandbox.nouns import Accept, Cage, Call, Ended, Job, Ran, Sandbox

POLL_S = 0.1
CHUNK = 1 << 16
SETTLE_S = 1.0  # a program that closed its pipe is given this long to tell how it ended


def driver_source() -> str:
    """`values` and `driver` as one script that needs nothing but the standard library."""
    own = inspect.getsource(driver).replace("from __future__ import annotations\n", "")
    lines = [line for line in own.splitlines() if not line.startswith("from qualify.")]
    return inspect.getsource(values) + "\n".join(lines) + "\n"


def run(sandbox: Sandbox, job: Job, accept: Accept | None = None) -> Ran:
    """Run `job` in a cage of its own; every process in it is gone when this returns.

    `accept` sees each call as it comes back, outside of the cage; False ends the program.
    """
    began = time.monotonic()
    cage = sandbox.open(job.limits, driver_source())
    reader = _Reader(cage, job, sandbox.user(), began)
    ended: Ended = "error"
    detail = ""
    try:
        ended, detail = reader.read(accept)
    finally:
        status = cage.kill(SETTLE_S if ended == "exited" else 0.0)
    if ended == "exited":
        ended, detail = _why(status, reader.over_memory or cage.over_memory())
    return Ran(
        calls=tuple(reader.calls),
        ended=ended,
        detail=detail,
        seconds=time.monotonic() - began,
        start_s=reader.start_s,
        missing=tuple(reader.missing),
        peak_bytes=reader.peak_bytes,
    )


def _why(status: int | None, over_memory: bool) -> tuple[Ended, str]:
    """The pipe closed before the last call came back."""
    if over_memory:
        return "memory", "all processes together passed the memory limit"
    number = status if status is None or status >= 0 else 128 - status
    if number in (137, 152):  # SIGKILL, SIGXCPU: the limit on CPU time ends in either
        return "timeout", "killed by the limit on CPU time"
    if number is not None and number > 128:
        return "crashed", f"ended by signal {number - 128}"
    return "exited", f"the program ended by itself (status {status}) before its last call"


class _Reader:
    """Reads results under every deadline. Lines without the token are not results."""

    def __init__(self, cage: Cage, job: Job, user: int | None, began: float) -> None:
        self.cage, self.job, self.limits, self.began = cage, job, job.limits, began
        self.token = secrets.token_hex(16)
        self.calls: list[Call] = []
        self.missing: list[str] = []
        self.start_s: float | None = None
        self.last_s = began
        self.defined = False
        self.over_memory = False
        self.peak_bytes: int | None = None
        limits: dict[str, int] = dict(job.limits.rlimits)
        if user is not None:
            limits["user"] = user
        told = {
            "token": self.token,
            "code": job.code,
            "entry": job.entry,
            "inputs": list(job.inputs),
            "limits": limits,
        }
        self._job = (json.dumps(told) + "\n").encode("utf-8")
        self._buffer = bytearray()
        self._received = 0

    def read(self, accept: Accept | None) -> tuple[Ended, str]:
        """The outcome; `exited` where the pipe closed early and the status must tell why."""
        threading.Thread(target=self.cage.write, args=(self._job,), daemon=True).start()
        with selectors.DefaultSelector() as selector:
            selector.register(self.cage.fileno(), selectors.EVENT_READ)
            while True:
                left = self._deadline() - time.monotonic()
                if left <= 0:
                    return "timeout", self._late()
                ready = selector.select(min(left, POLL_S))
                if self._passed_memory():
                    return "memory", "all processes together passed the memory limit"
                if not ready:
                    continue
                data = os.read(self.cage.fileno(), CHUNK)
                if not data:
                    self._passed_memory()
                    return "exited", ""
                self._received += len(data)
                if self._received > self.limits.output_bytes:
                    return "output", f"more than {self.limits.output_bytes:,} bytes of results"
                found = self._take(data, accept)
                if found is not None:
                    self._passed_memory()
                    return found

    def _passed_memory(self) -> bool:
        self.over_memory = self.over_memory or self.cage.over_memory()
        self.peak_bytes = self.cage.peak_bytes()
        return self.over_memory

    def _deadline(self) -> float:
        limits = self.limits
        if self.start_s is None:
            return self.began + limits.start_s
        if not self.defined:
            return self.last_s + limits.define_s
        own = self.last_s + self._call_s(len(self.calls))
        return min(own, self.began + self.start_s + limits.define_s + limits.total_s)

    def _call_s(self, index: int) -> float:
        own = self.job.call_s
        return own[index] if own is not None and index < len(own) else self.limits.call_s

    def _late(self) -> str:
        if self.start_s is None:
            return f"the sandbox was not ready within {self.limits.start_s:.3g} s"
        where = f"call {len(self.calls)}" if self.defined else "the module"
        return f"{where} was not back within its time"

    def _take(self, data: bytes, accept: Accept | None) -> tuple[Ended, str] | None:
        self._buffer += data
        while (at := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:at])
            del self._buffer[: at + 1]
            told = self._genuine(line)
            if told is None:
                continue
            self.last_s = time.monotonic()
            if told.get("ready") is True and self.start_s is None:
                self.start_s = self.last_s - self.began
                self.missing = [str(m) for m in told.get("missing") or ()]
            elif told.get("defined") is True and self.start_s is not None:
                self.defined = True
            elif told.get("i") == -1 and not self.calls:
                return _failed(str(told.get("x")))
            elif told.get("i") == len(self.calls) and self.start_s is not None:
                call = _call(told)
                self.calls.append(call)
                if accept is not None and not accept(call):
                    return "stopped", f"call {call.index}"
                if len(self.calls) == len(self.job.inputs):
                    return "done", ""
        return None

    def _genuine(self, line: bytes) -> dict[str, Any] | None:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(told, dict):
            return None
        token = told.get("t")
        good = isinstance(token, str) and secrets.compare_digest(
            token.encode("utf-8", "replace"), self.token.encode()
        )
        return told if good else None


def _failed(error: str) -> tuple[Ended, str]:
    return ("memory" if error.startswith("MemoryError") else "error"), error[:300]


def _call(told: dict[str, Any]) -> Call:
    index = int(told["i"])
    value, digest, error, used, peak = (told.get(k) for k in ("v", "h", "x", "s", "m"))
    if not isinstance(value, str) and not isinstance(digest, str):
        return Call(index, error=str(error)[:300])
    return Call(
        index,
        value=value if isinstance(value, str) else None,
        digest=digest if isinstance(digest, str) and not isinstance(value, str) else None,
        cpu_s=used if isinstance(used, float) else None,
        peak_bytes=peak if isinstance(peak, int) else None,
    )
