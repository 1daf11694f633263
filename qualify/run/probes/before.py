"""Looked at before a launch: the checkpoints and, where the campaign asks, the image.

A server that starts on a broken checkpoint may never say so; what was seen is written down
before it starts, in the same lines as a probe's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qualify.engines.docker_client import connect
from qualify.engines.docker_image import ensure_image
from qualify.engines.docker_nouns import Holds
from qualify.engines.inner import value_at
from qualify.engines.origin import DRAFT_ARGUMENTS
from qualify.engines.resolve import ResolvedLaunch
from qualify.errors import QualifyError
from qualify.inspect.checkpoint import inspect_checkpoint
from qualify.inspect.image import inspect_image
from qualify.inspect.nouns import Inspection

DRAFTER_KINDS = ("dflash2", "dspark")


def inspections_of(resolved: ResolvedLaunch, checks: Mapping[str, Any]) -> list[str]:
    """Which of "integrity" and "image" there is something to look at for."""
    wanted = []
    here = resolved.kind != "attach" and (resolved.model or drafter_of(resolved))
    if checks.get("integrity") is not False and here:
        wanted.append("integrity")
    if checks.get("image") not in (None, False) and resolved.container is not None:
        wanted.append("image")
    return wanted


def look(name: str, resolved: ResolvedLaunch) -> list[tuple[str, dict[str, Any]]]:
    """(step, what was seen) for each thing that was looked at. Blocking; what could not be
    looked at is a step of its own that says why."""
    if name == "image":
        return [("image", _told(lambda: _image(resolved)))]
    steps = []
    model = Path(resolved.model) if resolved.model else None
    drafter = drafter_of(resolved)
    mode = resolved.mode
    if model is not None:
        kind = "mtp" if mode == "mtp" else None
        steps.append(("target", _told(lambda: _checkpoint(model, kind, None))))
    if drafter is not None:
        kind = mode if mode in DRAFTER_KINDS else None
        target = model if kind is not None else None
        steps.append(("drafter", _told(lambda: _checkpoint(Path(drafter), kind, target))))
    return steps


def drafter_of(resolved: ResolvedLaunch) -> str | None:
    """The path of the drafter's own checkpoint, where an argument of the launch names one."""
    for name in (*DRAFT_ARGUMENTS, "speculative-config.model"):
        value = value_at(resolved.args, name)
        if isinstance(value, str) and value:
            return value
    return None


def _checkpoint(path: Path, kind: str | None, target: Path | None) -> Inspection:
    if not path.exists():
        text = f"{path} is not on this machine"
        return Inspection(str(path), kind or "unknown", (), (text,))
    return inspect_checkpoint(path, kind=kind, target=target)


def _image(resolved: ResolvedLaunch) -> Inspection:
    assert resolved.container is not None
    client = connect()
    try:
        found = ensure_image(client, resolved.container.image)
        return inspect_image(found.id, resolved.container.holds or Holds(), client=client)
    finally:
        client.close()


def _told(inspect: Any) -> dict[str, Any]:
    try:
        found: Inspection = inspect()
    except QualifyError as error:
        return {"error": f"{error.message} {error.remedy}".strip()}
    return found.to_json()
