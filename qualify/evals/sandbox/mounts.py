"""What of the host a program may see, read-only: this Python's own files and the C library."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path

_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache")


@cache
def interpreter() -> str:
    """The real interpreter, outside of any virtual environment: nothing installed is seen."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for folder in (
        Path(sys.base_exec_prefix) / "bin",
        Path(os.path.realpath(sys.executable)).parent,
    ):
        for candidate in (folder / name, folder / "python3"):
            if candidate.exists():
                return os.path.realpath(candidate)
    return os.path.realpath(sys.executable)


@cache
def visible() -> tuple[str, ...]:
    """Paths to mount at their own place, parents before what lies in them, none twice."""
    python = Path(interpreter())
    prefix = Path(os.path.realpath(sys.base_prefix))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    own = [prefix / "lib" / version, prefix / "lib64" / version]
    own += sorted((prefix / "lib").glob("libpython*.so*"))
    wanted = [*_SYSTEM, str(python), *[str(p) for p in own]]
    found: list[str] = []
    for path in wanted:
        if Path(path).exists() and not any(_inside(path, f) for f in found):
            found.append(path)
    return tuple(found)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def parents(paths: tuple[str, ...]) -> list[str]:
    """Every folder above them, the outermost first: mounting makes them private otherwise."""
    above = {str(p) for path in paths for p in Path(path).parents}
    return sorted(above - {"/"})


def version() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"
