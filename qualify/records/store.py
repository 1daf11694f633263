"""The append-only store of one run: crash-safe lines, and how a run is read back.

Each line is written by one os.write to a file opened with O_APPEND, so a process killed at
any moment leaves whole lines and at most one cut line at the end, which reading reports and
skips (rule 13). Whole files are written beside their place and renamed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from qualify.errors import UsageError
from qualify.evals.nouns import Completion, Score
from qualify.plan import Plan
from qualify.records.codec import from_dict, from_line, to_line, utf8
from qualify.records.probes import standing_probes
from qualify.records.run import Run
from qualify.records.schema import CellEnd, LaunchRecord, ProbeRecord, Record

T = TypeVar("T")

RECORDS, CELLS, LAUNCHES = "records.jsonl", "cells.jsonl", "launches.jsonl"
EVALS, SCORES = "evals.jsonl", "scores.jsonl"
PROBES = "probes.jsonl"
PLAN, META = "plan.json", "run.json"

WRITTEN = (RECORDS, CELLS, LAUNCHES, EVALS, SCORES, PROBES)  # line by line, as a run goes on

Entry = Record | CellEnd | LaunchRecord | Completion | Score | ProbeRecord
_FILES: dict[type[Any], str] = {
    Record: RECORDS,
    CellEnd: CELLS,
    LaunchRecord: LAUNCHES,
    Completion: EVALS,
    Score: SCORES,
    ProbeRecord: PROBES,
}


def write_whole(path: Path, data: bytes) -> None:
    """Write to a temporary name in the same folder, flush to disk, rename into place."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class Store:
    """Appends to one run's folder. One writer at a time: a second one is refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise UsageError(
                f"another qualify process is writing {folder}",
                "Wait for it to end, or give this run another folder with --out.",
            ) from error
        self._files: dict[str, int] = {}

    def append(self, entry: Entry) -> None:
        """Write one line; it is on its way to the disk when this returns.

        The end of a cell or launch is also flushed to the disk itself.
        """
        name = _FILES[type(entry)]
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = _open_for_append(self.folder / name)
        _write_all(file, to_line(entry))
        if isinstance(entry, CellEnd | LaunchRecord):
            for open_file in self._files.values():
                os.fsync(open_file)

    def write_json(self, name: str, data: Any) -> None:
        text = json.dumps(data, allow_nan=False, ensure_ascii=False, indent=1, sort_keys=True)
        write_whole(self.folder / name, utf8(text) + b"\n")

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        os.close(self._lock)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _open_for_append(path: Path) -> int:
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        # A kill cut the last line: close it, so that the next one starts whole.
        _write_all(file, b"\n")
    return file


def read_lines(cls: type[T], path: Path, damage: list[str]) -> Iterator[T]:
    """Every readable line; what cannot be read is named in `damage` with its line number."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield from_line(cls, line)
            except ValueError:
                kind = "incomplete (interrupted write)" if not _is_json(line) else "no such record"
                damage.append(f"{path.name}: line {number} is {kind}")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def read_json(path: Path) -> Any:
    """Raises UsageError with a remedy where the file is missing or broken."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{path.parent} is not a run: it has no {path.name}",
            "Give the folder of a run, such as reports/quickstart-20260101-120000.",
        ) from None
    except ValueError as error:
        raise UsageError(
            f"{path} cannot be read: {error}", "Restore it from a copy, or run the campaign again."
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where the file is missing, broken or something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def read_plan(folder: Path) -> Plan:
    """Raises UsageError with a remedy where the plan is missing, broken or no plan."""
    path = folder / PLAN
    try:
        return from_dict(Plan, read_json(path))
    except ValidationError as error:
        raise _other(path, "plan", error) from None


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / META
    try:
        return from_dict(dict[str, Any], read_json(path))
    except ValidationError as error:
        raise _other(path, "description of a run", error) from None


def _other(path: Path, what: str, error: ValidationError) -> UsageError:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or "the whole of it"
    return UsageError(
        f"{path} is no {what} that this version reads: {where}: {first['msg']}.",
        "Restore it from a copy, or run the campaign again.",
    )


def load_run(folder: Path) -> Run:
    """Read a run back. For each planned cell the finished attempt stands, else the last
    failed one; records of any other attempt are kept as superseded."""
    meta = _read_meta(folder)
    plan = read_plan(folder)
    damage: list[str] = []
    launches = tuple(read_lines(LaunchRecord, folder / LAUNCHES, damage))
    ends = list(read_lines(CellEnd, folder / CELLS, damage))
    records = list(read_lines(Record, folder / RECORDS, damage))
    completions = tuple(read_lines(Completion, folder / EVALS, damage))
    scores = tuple(read_lines(Score, folder / SCORES, damage))
    probes = standing_probes(read_lines(ProbeRecord, folder / PROBES, damage))
    standing = standing_cells(ends)
    ordered = [
        standing[launch.id, cell.id]
        for launch in plan.launches
        for cell in launch.cells
        if (launch.id, cell.id) in standing
    ]
    keys = {(end.launch, end.cell) for end in ordered}
    return Run(
        id=str(meta.get("id", folder.name)),
        folder=folder,
        plan=plan,
        launches=launches,
        cells=tuple(ordered),
        records=tuple(r for r in records if _stands(r, keys)),
        superseded=tuple(r for r in records if not _stands(r, keys)),
        damage=tuple(damage),
        meta=meta,
        completions=completions,
        scores=scores,
        probes=probes,
    )


def _stands(record: Record, keys: set[tuple[str, str]]) -> bool:
    return record.phase == "probe" or (record.launch, record.cell) in keys


def standing_cells(ends: list[CellEnd]) -> dict[tuple[str, str], CellEnd]:
    """(planned launch id, cell id) -> the end that counts: finished before failed, last wins."""
    standing: dict[tuple[str, str], CellEnd] = {}
    for end in ends:
        key = (planned_launch(end.launch), end.cell)
        if end.status == "finished" or (
            end.status == "failed" and (key not in standing or standing[key].status != "finished")
        ):
            standing[key] = end
    return standing


def planned_launch(launch: str) -> str:
    """The plan's launch id of an attempt: `r1.mtp#2` -> `r1.mtp`."""
    return launch.rsplit("#", 1)[0]
