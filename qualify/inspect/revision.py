"""Which revision a checkpoint is, as far as its folder says."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"\b[0-9a-f]{40}\b")


def revision_of(folder: Path) -> str | None:
    """The commit that a download noted, or that a cache's folder is named after; else None.

    Sources: .cache/huggingface/download/*.metadata of `hf download --local-dir` (the first
    line), snapshots/COMMIT of its cache.
    """
    notes = sorted((folder / ".cache" / "huggingface" / "download").rglob("*.metadata"))
    found = {
        match[0]
        for note in notes
        if (match := _COMMIT.search(note.read_text("utf-8", "replace").split("\n", 1)[0]))
    }
    if len(found) == 1:
        return found.pop()
    if found:
        return "mixed: " + ", ".join(sorted(found))
    resolved = folder.resolve()
    if resolved.parent.name == "snapshots" and _COMMIT.fullmatch(resolved.name):
        return resolved.name
    return None
