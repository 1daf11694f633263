"""SHA-256 of model files, remembered by path, size and time of change.

A checkpoint of 50 GB takes a minute to read; it is read once and again only when it changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from qualify.errors import UsageError
from qualify.paths import cache_dir

# What a folder that holds a checkpoint or a tokenizer has at its top.
REMEMBERED = 2000  # files; a checkpoint has up to a few hundred
_MARKS = ("config.json", "tokenizer.json", "*.safetensors", "*.gguf", "*.bin")


def file_sha256(path: Path) -> str:
    """Hash of the file's bytes. Raises OSError when it cannot be read."""
    stat = path.stat()
    key = str(path.resolve())
    stamp = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    known = _read(_memory())
    entry = known.get(key)
    if isinstance(entry, list) and entry[:3] == stamp and isinstance(entry[3], str):
        return entry[3]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    known.pop(key, None)  # the last one learnt stands last
    known[key] = [*stamp, digest]
    _write(_memory(), _bounded(known))
    return digest


def checkpoint_files(path: Path) -> list[Path]:
    """The files that make a checkpoint: the file itself, or what lies in the folder.

    Raises UsageError for a folder that holds none: hashing whatever lies below it could take
    hours, and its hash would say nothing.
    """
    if path.is_file():
        return [path]
    if not any(True for mark in _MARKS for _ in path.glob(mark)):
        raise UsageError(
            f"The folder {path} holds no model: none of {', '.join(_MARKS)} is in it.",
            "Name the folder of a checkpoint, or one model file.",
        )
    return sorted(
        p for p in path.rglob("*") if p.is_file() and ".git" not in p.relative_to(path).parts
    )


def checkpoint_hashes(path: str | Path) -> dict[str, dict[str, Any]] | None:
    """name -> {sha256, bytes} of every file of a checkpoint; None when it is no path here.

    Raises UsageError where a file cannot be read.
    """
    root = Path(path)
    if not root.exists():
        return None
    base = root if root.is_dir() else root.parent
    try:
        return {
            p.relative_to(base).as_posix(): {"sha256": file_sha256(p), "bytes": p.stat().st_size}
            for p in checkpoint_files(root)
        }
    except OSError as error:
        raise UsageError(
            f"A file of the model at {root} cannot be read: {error}.",
            "Look at its permissions, and at whether it is still being written.",
        ) from None


def checkpoint_digest(path: str | Path) -> str | None:
    """One hash over names and contents of a checkpoint, for a plan's identity."""
    files = checkpoint_hashes(path)
    if files is None:
        return None
    text = json.dumps({name: f["sha256"] for name, f in files.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _memory() -> Path:
    return cache_dir() / "hashes.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _bounded(known: dict[str, Any]) -> dict[str, Any]:
    """Files that are gone are forgotten once there are many, then those learnt first."""
    if len(known) <= REMEMBERED:
        return known
    here = {key: entry for key, entry in known.items() if Path(key).exists()}
    return dict(list(here.items())[-REMEMBERED:])


def _write(path: Path, known: dict[str, Any]) -> None:
    """Best effort: without a writable cache a hash is only computed again."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(known))
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
