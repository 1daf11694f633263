"""Where runs live: reports/<campaign>-<UTC time>, and which one a resume continues."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from qualify.errors import UsageError


def new_run_folder(root: Path, campaign: str) -> Path:
    """A folder that does not exist yet; the name sorts by time."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", campaign).strip("-.") or "run"
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = root / f"{name}-{stamp}"
    number = 2
    while folder.exists():
        folder = root / f"{name}-{stamp}-{number}"
        number += 1
    return folder


def find_resumable(root: Path, campaign: str) -> Path:
    """The latest run of that campaign under `root`. Raises UsageError when there is none."""
    found: list[tuple[str, Path]] = []
    for meta_file in root.glob("*/run.json"):
        try:
            meta = json.loads(meta_file.read_bytes())
        except (OSError, ValueError):
            continue
        if meta.get("campaign") == campaign:
            found.append((str(meta.get("created", "")), meta_file.parent))
    if not found:
        raise UsageError(
            f"there is no run of campaign {campaign!r} under {root} to resume",
            "Leave --resume out to start one, or name its folder with --out.",
        )
    return max(found)[1]
