"""Headers of safetensors files, read without loading a tensor.

Source: the safetensors format: eight bytes of length, a JSON object, then the payload; each
tensor's data_offsets are relative to the payload.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualify.errors import UsageError
from qualify.inspect.nouns import Fault

HEADER_MOST = 100_000_000  # the format's own bound
BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2,
    "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Head:
    """One tensor: where its bytes lie in which file. begin and end count from the file's start."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Heads:
    tensors: dict[str, Head]
    files: tuple[Path, ...]
    faults: tuple[Fault, ...]


def read_heads(folder: Path) -> Heads:
    """Every tensor of a checkpoint's folder (or of one file), and what is wrong with the files.

    An index must name what its shards hold, and shards must hold what it names. Raises
    UsageError where there is no safetensors file at all.
    """
    files = [folder] if folder.is_file() else sorted(folder.glob("*.safetensors"))
    index = _index(folder)
    faults: list[Fault] = []
    if not files and index is None:
        raise UsageError(
            f"{folder} holds no safetensors file.",
            "Name the folder of a checkpoint: config.json and *.safetensors.",
        )
    tensors: dict[str, Head] = {}
    for file in files:
        for head in _one(file, faults):
            if head.name in tensors:
                where = f"{tensors[head.name].file.name} and {file.name}"
                faults.append(Fault("twice", head.name, f"{head.name} stands in {where}."))
            tensors[head.name] = head
    for name, shard in (index or {}).items():
        if not (folder / shard).exists():
            faults.append(Fault("shard", shard, f"The index names {shard}, which is not there."))
            index = {n: s for n, s in (index or {}).items() if s != shard}
        elif name not in tensors:
            faults.append(Fault("missing", name, f"The index names {name}, and {shard} lacks it."))
    return Heads(tensors, tuple(files), tuple(_once(faults)))


def _index(folder: Path) -> dict[str, str] | None:
    file = folder / INDEX
    if folder.is_file() or not file.exists():
        return None
    try:
        listed = json.loads(file.read_bytes()).get("weight_map")
    except (ValueError, AttributeError):
        listed = None
    if not isinstance(listed, dict):
        raise UsageError(f"{file} is no index of shards.", "Fetch it again.")
    return {str(k): str(v) for k, v in listed.items()}


def _one(file: Path, faults: list[Fault]) -> list[Head]:
    size = file.stat().st_size

    def broken(why: str) -> list[Head]:
        faults.append(Fault("file", file.name, f"{file.name} is no whole safetensors file: {why}."))
        return []

    with file.open("rb") as stream:
        first = stream.read(8)
        if len(first) < 8:
            return broken("it is shorter than its own header")
        (length,) = struct.unpack("<Q", first)
        if length > min(HEADER_MOST, size - 8):
            return broken(f"its header claims {length:,} bytes of {size:,}")
        try:
            told = json.loads(stream.read(length))
        except ValueError:
            return broken("its header is not JSON")
    if not isinstance(told, dict):
        return broken("its header is no mapping")
    start, found = 8 + length, []
    for name, entry in told.items():
        if name == "__metadata__":
            continue
        head = _head(file, name, entry, start)
        if head is None:
            return broken(f"{name} is described as {str(entry)[:100]}")
        found.append(head)
    end = max((h.end for h in found), default=start)
    if end > size:
        return broken(f"its tensors need {end:,} bytes, and it has {size:,}: it is cut short")
    return found


def _head(file: Path, name: str, entry: Any, start: int) -> Head | None:
    """None where the entry contradicts itself: a shape that does not fill its bytes."""
    try:
        dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
        low, high = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        return None
    count = 1
    for n in shape:
        count *= n
    if low < 0 or high < low or (dtype in BYTES and count * BYTES[dtype] != high - low):
        return None
    return Head(name, file, dtype, shape, start + low, start + high)


def _once(faults: list[Fault]) -> list[Fault]:
    return list(dict.fromkeys(faults))
