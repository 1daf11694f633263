"""Write a made run into a folder the way a real one lies there."""

from __future__ import annotations

from pathlib import Path

from qualify.records.codec import to_dict
from qualify.records.run import Run
from qualify.records.store import META, PLAN, Store


def write_run(run: Run, folder: Path) -> Path:
    with Store(folder) as store:
        store.write_json(PLAN, to_dict(run.plan))
        store.write_json(META, {"id": run.id, "campaign": "made", **run.meta})
        for launch in run.launches:
            store.append(launch)
        for record in run.records:
            store.append(record)
        for end in run.cells:
            store.append(end)
    return folder
