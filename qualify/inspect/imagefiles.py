"""The files of an image's sources, read from a tar stream in one pass."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field

SOURCE_MOST = 4 << 20  # no source file of an engine is larger
HASHED_MOST = 256 << 20


@dataclass
class Files:
    """Regular files by absolute path -> sha256 (None: larger than is hashed), sources of Python,
    and the text of the manifest, whose base name is one of `manifests` or which is that path."""

    manifests: tuple[str, ...]
    files: dict[str, str | None] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    manifest_path: str | None = None
    manifest: str | None = None

    def take(self, root: str, archive: tarfile.TarFile, skip: Iterable[str] = ()) -> None:
        """Everything below `root`; `archive` names its members from the root's own name on."""
        above = root.rpartition("/")[0]
        for member in archive:
            path = f"{above}/{member.name.removeprefix('./').lstrip('/')}"
            if path.lstrip("/").split("/")[0] in skip:
                continue
            if member.isdir():
                self.folders.append(path)
            elif member.issym() or member.islnk():
                self.files.setdefault(path, None)
            elif member.isfile():
                self._file(path, member, archive)

    def _file(self, path: str, member: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
        self.files[path] = None
        if member.size > HASHED_MOST:
            return
        stream = archive.extractfile(member)
        if stream is None:
            return
        data = stream.read()
        self.files[path] = hashlib.sha256(data).hexdigest()
        if path.endswith(".py") and member.size <= SOURCE_MOST:
            self.sources[path] = data.decode("utf-8", "replace")
        if path in self.manifests or path.rpartition("/")[2] in self.manifests:
            self.manifest_path, self.manifest = path, data.decode("utf-8", "replace")


class ChunkStream(io.RawIOBase):
    """Chunks of bytes, as docker-py gives them, as a file that tarfile can read."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._left = iter(chunks), b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        parts, held = [self._left], len(self._left)
        while size < 0 or held < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            held += len(chunk)
        data = b"".join(parts)
        if size < 0:
            size = len(data)
        self._left = data[size:]
        return data[:size]
