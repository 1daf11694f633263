"""The start of a run: what earlier ones left is ended, and what will be done is written down."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

import qualify
from qualify.engines.docker_sweep import sweep_containers
from qualify.engines.owned import Swept
from qualify.engines.resolve import ResolvedLaunch
from qualify.plan import Plan
from qualify.records.codec import to_dict
from qualify.records.store import META, PLAN, WRITTEN, Store
from qualify.run.journal import now


def left_containers(resolved: Mapping[str, ResolvedLaunch]) -> list[Swept]:
    """End what dead runs left in containers: it holds the devices that this one needs."""
    return sweep_containers() if any(r.kind == "docker" for r in resolved.values()) else []


def forget_start(folder: Path, *, made: bool) -> None:
    """Take back what `write_start` wrote, where nothing came after it: a run that was refused
    is none, and must not be found as the latest. made: the folder was made for it."""
    if any((folder / name).exists() for name in WRITTEN):
        return
    for name in ("campaign.yaml", PLAN, META, ".lock"):
        (folder / name).unlink(missing_ok=True)
    if made and not any(folder.iterdir()):
        folder.rmdir()


def write_start(store: Store, plan: Plan, campaign_file: Path | None) -> None:
    """The plan before the meta: a folder with run.json has all that a resume needs."""
    if campaign_file is not None:
        (store.folder / "campaign.yaml").write_bytes(campaign_file.read_bytes())
    store.write_json(PLAN, to_dict(plan))
    store.write_json(
        META,
        {
            "id": store.folder.name,
            "campaign": plan.campaign.get("campaign"),
            "created": now(),
            "plan_hash": plan.hash,
            "qualify": qualify.__version__,
            "python": platform.python_version(),
        },
    )
