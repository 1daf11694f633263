"""A .gguf file looked at as a checkpoint: its tensors' heads, without loading one.

Source: the GGUF format: key-value pairs, then one entry a tensor (name, sizes, type, offset), then
the payload at the next multiple of general.alignment.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from qualify.errors import UsageError
from qualify.inspect.headers import Head, Heads
from qualify.inspect.nouns import Fault
from qualify.prompts.gguf import read_metadata

NAMED_TYPES = {0: "F32", 1: "F16", 30: "BF16"}  # of the rest, only that there is something in it
SKIPPED = 1 << 28


def read_gguf(file: Path) -> Heads:
    """Every tensor; its end is where the next one begins. A file that is cut short is a fault.

    Raises UsageError for what is no GGUF of version 2 or 3.
    """
    metadata = read_metadata(file)
    align = int(metadata.get("general.alignment", 32))
    size = file.stat().st_size
    entries: list[tuple[int, str, tuple[int, ...], str]] = []
    try:
        with file.open("rb") as stream:
            stream.seek(8)
            tensors, pairs = struct.unpack("<QQ", stream.read(16))
            for _ in range(pairs):
                _skip_text(stream)
                _skip_value(stream, _u32(stream))
            for _ in range(tensors):
                name = _text(stream)
                dims = struct.unpack(f"<{(n := _u32(stream))}Q", stream.read(8 * n))
                kind, offset = _u32(stream), struct.unpack("<Q", stream.read(8))[0]
                told = NAMED_TYPES.get(kind, f"type {kind}")
                entries.append((offset, name, tuple(reversed(dims)), told))
            start = -(-stream.tell() // align) * align
    except (struct.error, ValueError, KeyError, MemoryError) as error:
        raise UsageError(f"{file} has a broken header ({error}).", "Fetch it again.") from error
    if not entries:
        return Heads({}, (file,), (Fault("file", file.name, f"{file.name} holds no tensor."),))
    entries.sort()
    ends = [start + entry[0] for entry in entries[1:]] + [size]
    heads = {
        name: Head(name, file, kind, shape, start + offset, end)
        for (offset, name, shape, kind), end in zip(entries, ends, strict=True)
    }
    beyond = [h.name for h in heads.values() if h.begin >= size or h.end > size]
    text = f"{file.name} has {size:,} bytes, and {len(beyond)} tensors lie beyond: it is cut short."
    faults = (Fault("file", file.name, text),) if beyond else ()
    kept = {name: head for name, head in heads.items() if name not in beyond}
    return Heads(kept, (file,), faults)


_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _u32(stream: BinaryIO) -> int:
    return int(struct.unpack("<I", stream.read(4))[0])


def _text(stream: BinaryIO) -> str:
    (size,) = struct.unpack("<Q", stream.read(8))
    if size > SKIPPED:
        raise ValueError("a name of more than 256 MB")
    return stream.read(size).decode("utf-8", "replace")


def _skip_text(stream: BinaryIO) -> None:
    (size,) = struct.unpack("<Q", stream.read(8))
    stream.seek(size, 1)


def _skip_value(stream: BinaryIO, kind: int) -> None:
    if kind == 8:
        _skip_text(stream)
    elif kind == 9:
        inner, count = struct.unpack("<IQ", stream.read(12))
        if inner in (8, 9):
            for _ in range(count):
                _skip_value(stream, inner)
        else:
            stream.seek(count * _SIZES[inner], 1)
    else:
        stream.seek(_SIZES[kind], 1)
