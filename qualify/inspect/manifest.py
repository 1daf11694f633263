"""The source manifest of an image: every listed file as it was, and no source beside the list."""

from __future__ import annotations

import posixpath
import re

from qualify.inspect.imagefiles import Files
from qualify.inspect.nouns import Fault

_LINE = re.compile(r"^(?P<sha>[0-9a-f]{64})[ \t]+\*?(?P<path>.+)$")


def judge(files: Files, *, required: bool, unjudged: list[str]) -> list[Fault]:
    """`sha256  PATH` lines (as sha256sum writes them; others are comments), relative to the
    manifest's folder, against the files. A Python file below that folder that is not listed comes
    from elsewhere: that is how a mixed source tree looks."""
    if files.manifest is None:
        if required:
            where = files.manifests[0]
            return [Fault("manifest", where, f"The image holds no source manifest {where}.")]
        unjudged.append("the image holds no source manifest that is known by its name")
        return []
    assert files.manifest_path is not None
    base = posixpath.dirname(files.manifest_path)
    listed = {
        posixpath.normpath(posixpath.join(base, match["path"].strip())): match["sha"]
        for line in files.manifest.splitlines()
        if (match := _LINE.match(line.strip()))
    }
    faults = []
    if not listed:
        text = f"{files.manifest_path} lists no file."
        return [Fault("manifest", files.manifest_path, text)]
    for path, sha in listed.items():
        if path not in files.files:
            faults.append(Fault("manifest", path, f"{path} is in the manifest and not there."))
        elif files.files[path] != sha:
            faults.append(Fault("manifest", path, f"{path} is not the file of the manifest."))
    for path in sorted(files.sources):
        if path.startswith(f"{base}/") and path not in listed:
            faults.append(Fault("manifest", path, f"{path} is not in the manifest."))
    return faults
