"""Python, packages, memory, disk, ports and devices of this host."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from qualify.doctor.finding import Finding
from qualify.paths import cache_dir

GIB = 2**30
LEAST_DISK = 2 * GIB
LEAST_MEMORY = 2 * GIB


def host_findings() -> Iterator[Finding]:
    yield _python()
    yield from _packages()
    yield _memory()
    yield _load()
    yield _disk("disk for reports", Path.cwd())
    yield _disk("disk for models", cache_dir())
    yield _ports()
    yield _devices()


def _python() -> Finding:
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Finding("python", "ok", f"{version} at {sys.executable}")
    return Finding("python", "fail", f"{version} is not supported", "Use Python 3.11 to 3.13.")


def _packages() -> Iterator[Finding]:
    """Requirements of the installed distribution, by extra; markers decide which apply."""
    try:
        declared = importlib.metadata.requires("qualify") or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            "packages", "warn", "qualify is not installed, only importable", "Run: make install"
        )
        return
    missing: dict[str, list[str]] = {}
    count = 0
    for line in declared:
        name, extra = _requirement(line)
        count += not extra
        if not _installed(name):
            missing.setdefault(extra, []).append(name)
    if "" in missing:
        names = ", ".join(missing[""])
        yield Finding("packages", "fail", f"missing: {names}", "Run: make install")
    else:
        yield Finding("packages", "ok", f"all {count} required packages are installed")
    for extra in ("llama-cpp", "engine"):
        if extra in missing:
            names = ", ".join(missing[extra])
            yield Finding(
                f"extra {extra}",
                "warn",
                f"missing: {names}",
                f"Run: pip install 'qualify[{extra}]'",
            )


def _requirement(line: str) -> tuple[str, str]:
    """ "click<9; extra == 'dev'" -> ("click", "dev")."""
    head, _, marker = line.partition(";")
    name = head.strip()
    for stop in "<>=!~[ (":
        name = name.split(stop, 1)[0]
    extra = marker.split("extra ==", 1)[1].strip(" \"')") if "extra ==" in marker else ""
    return name, extra


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    says = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB are free"
    if memory.available < LEAST_MEMORY:
        return Finding("memory", "warn", says, "Close what else runs; an engine needs room.")
    return Finding("memory", "ok", says)


def _load() -> Finding:
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    says = f"load {load:.1f} on {cores} cores"
    if load > cores * 0.5:
        cure = "Wait until it is idle: other work slows the engine and blurs every figure."
        return Finding("load", "warn", says, cure)
    return Finding("load", "ok", says)


def _disk(name: str, path: Path) -> Finding:
    there = path
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    says = f"{free / GIB:.1f} GiB free at {path}"
    if not os.access(there, os.W_OK):
        return Finding(name, "fail", f"{there} cannot be written", "Work in a folder of yours.")
    if free < LEAST_DISK:
        return Finding(name, "warn", says, "Free some space: runs and models may not fit.")
    return Finding(name, "ok", says)


def _ports() -> Finding:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    except OSError as error:
        cure = "Allow this user to listen on 127.0.0.1."
        return Finding("ports", "fail", f"no port of 127.0.0.1 can be used: {error}", cure)
    return Finding("ports", "ok", f"ports of 127.0.0.1 can be used (tried {port})")


def _devices() -> Finding:
    nvidia = sorted(p.name for p in Path("/dev").glob("nvidia[0-9]*"))
    render = sorted(p.name for p in Path("/dev/dri").glob("renderD*"))
    found = nvidia + render
    says = ", ".join(found) if found else "none found; CPU engines need none"
    return Finding("devices", "ok", says)
