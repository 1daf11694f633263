"""What the reference solutions return, computed once in the sandbox and kept by hash.

One small compressed file a problem: values as JSON texts, large ones as digests, with the CPU
time of each call and the peak memory. Nothing is unpickled.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualify.evals.nouns import Problem
from qualify.evals.oracle import Expected
from qualify.evals.sandbox import mounts
from qualify.evals.sandbox.choose import Chosen, scaled
from qualify.evals.sandbox.nouns import Job, Limits, SandboxError
from qualify.evals.sandbox.session import driver_source, run

GENEROUS = Limits(
    define_s=60.0, call_s=120.0, total_s=900.0, memory_bytes=6 << 30, output_bytes=1 << 30
)


@dataclass(frozen=True)
class Truth:
    """Of one problem, call by call: base inputs, then plus inputs."""

    expected: tuple[Expected, ...]
    cpu_s: tuple[float, ...]
    peak_bytes: int


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "qualify" / "truth"


def key_of(reference: str, entry: str, inputs: Sequence[Any]) -> str:
    """The program, its inputs, and whatever else decides what is written down of them."""
    told = [reference, entry, list(inputs), driver_source(), mounts.version()]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def truth_of(problem: Problem, chosen: Chosen, folder: Path | None = None) -> Truth:
    """From the cache, or by running the reference. Raises SandboxError where it fails."""
    data = problem.data
    inputs = [*data["base"], *data["plus"]]
    key = key_of(data["reference"], data["entry"], inputs)
    file = (folder if folder is not None else cache_folder()) / f"{key}.json.gz"
    with suppress(OSError, EOFError, ValueError, KeyError, TypeError):
        return _read(json.loads(gzip.decompress(file.read_bytes())), len(inputs))
    job = Job(data["reference"], data["entry"], inputs, scaled(GENEROUS, chosen.slowdown))
    ran = run(chosen.sandbox, job)
    broken = next((c for c in ran.calls if c.error is not None), None)
    if ran.ended != "done" or broken is not None:
        why = broken.error if broken is not None else f"{ran.ended}: {ran.detail}"
        raise SandboxError(
            f"The reference solution of {problem.id} does not run here ({why}).",
            "Free memory, or leave the problem out with a subset.",
        )
    told = {
        "expected": [[c.value, c.digest] for c in ran.calls],
        "cpu_s": [c.cpu_s or 0.0 for c in ran.calls],
        "peak_bytes": max((c.peak_bytes or 0 for c in ran.calls), default=0),
    }
    with suppress(OSError):  # a cache that cannot be written costs time, nothing else
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.{os.getpid()}.part")
        part.write_bytes(gzip.compress(json.dumps(told).encode(), mtime=0))
        part.replace(file)  # another process never reads half a file
    return _read(told, len(inputs))


def _read(told: dict[str, Any], calls: int) -> Truth:
    expected = tuple(Expected(value, digest) for value, digest in told["expected"])
    if len(expected) != calls:
        raise ValueError("another number of calls")
    return Truth(expected, tuple(map(float, told["cpu_s"])), int(told["peak_bytes"]))
