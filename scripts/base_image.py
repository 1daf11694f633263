"""The file system of a small image with Debian's Python, made of this machine's own packages.

Writes a tar archive to standard output, for `docker import`. Nothing is fetched: the files are
those that dpkg installed for the packages below and all that they depend on.
Run by the system's own Python: /usr/bin/python3 scripts/base_image.py | docker import - NAME
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOTS = (
    "python3",
    "bash",
    "dash",
    "coreutils",
    "base-files",
    "libstdc++6",
    "procps",
    "ca-certificates",
)
# Installed on every Debian but named by nothing that Python needs, or of no use in an image.
LEFT_OUT = ("debconf", "perl", "dpkg", "tzdata", "media-types", "mailcap", "systemd", "init")
NOT_COPIED = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info")
MERGED = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
MADE = (
    "/etc/passwd",
    "/etc/group",
    "/usr/bin/sh",
    "/usr/bin/awk",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ld.so.cache",
)
EMPTY = ("dev", "proc", "sys", "run", "tmp", "root", "etc", "var/tmp", "home")


def output(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def closure(roots: tuple[str, ...]) -> list[str]:
    """Installed packages that `roots` need, themselves included."""
    installed = set(output("dpkg-query", "-W", "-f", "${Package}\\n"))
    depends: dict[str, list[str]] = {}
    for line in output("dpkg-query", "-W", "-f", "${Package}\\t${Pre-Depends}, ${Depends}\\n"):
        name, _, text = line.partition("\t")
        alternatives = text.replace("|", ",").split(",")
        names = (a.split("(")[0].split(":")[0].strip() for a in alternatives)
        depends[name] = [n for n in names if n in installed and not n.startswith(LEFT_OUT)]
    found: list[str] = []
    waiting = [r for r in roots if r in installed]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            waiting += depends.get(name, [])
    return sorted(found)


def files(packages: list[str]) -> Iterator[str]:
    """Absolute names without folders that are links (/bin), each once."""
    seen: set[str] = set()
    for line in output("dpkg", "-L", *packages):
        if not line.startswith("/") or line == "/." or line.startswith(NOT_COPIED):
            continue
        path = str(Path(line).parent.resolve() / Path(line).name)
        if path not in seen and os.path.lexists(path):
            seen.add(path)
            yield path


def main() -> None:
    packages = closure(ROOTS)
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        for name in EMPTY:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(folder)
        merged = [n for n in MERGED if Path("/", n).is_symlink()]
        # Those at the end are made by packages' scripts, so that no package lists them.
        paths = [*files(packages), *(f"/{n}" for n in merged), *MADE]
        for path in dict.fromkeys(paths):
            if path.strip("/") not in EMPTY and os.path.lexists(path):
                tar.add(path, arcname=path.lstrip("/"), recursive=False)
    print(f"{len(packages)} packages", file=sys.stderr)


main()
