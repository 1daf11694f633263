"""Texts of free packages that are installed here: package:NAME.

package:bible-kjv is the King James Bible as its own command prints it (1.2 million tokens);
otherwise the texts of a Debian package (`dpkg -L`), or of a Python package, in order of path.
Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from qualify.errors import UsageError
from qualify.prompts.corpus import Corpus, Document, make_corpus

PREFIX = "package:"
BIBLE = "bible-kjv"
_TEXTS = (".txt", ".rst", ".md", ".txt.gz", ".rst.txt")
_ABOUT = ("copyright", "changelog", "license", "copying", "readme", "notice", "authors")
_LEAST_CHARS = 2_000  # shorter files are notes about the package, not its text
_BIBLE_S = 60.0


def open_package(source: str) -> Corpus:
    """Raises UsageError where the package is not installed or holds no texts."""
    name = source.removeprefix(PREFIX)
    if name == BIBLE and shutil.which("bible") is not None:
        return make_corpus(source, [Document("bible", _bible())])
    documents = [
        Document(str(path), text)
        for path in sorted(_files(name))
        if (text := _text(path)) is not None
    ]
    if not documents:
        raise UsageError(
            f"There is no text of a package {name} here.",
            f"Install it (apt-get install {name}, or pip install {name}), or give a path.",
        )
    return make_corpus(source, documents)


def _bible() -> str:
    """One verse a line, as it prints them without its line numbers and breaks."""
    done = subprocess.run(
        ["bible", "-f", "Gen1:1-Rev22:21"],
        capture_output=True,
        text=True,
        timeout=_BIBLE_S,
        check=False,
    )
    verses = [line.partition(" ")[2].strip() for line in done.stdout.splitlines()]
    text = "\n".join(v for v in verses if v)
    if done.returncode or not text:
        raise UsageError(
            f"The command `bible` printed no text ({done.stderr.strip()[:200]}).",
            "apt-get install bible-kjv bible-kjv-text, or give a path.",
        )
    return text


def _files(name: str) -> Iterator[Path]:
    if shutil.which("dpkg") is not None:
        done = subprocess.run(["dpkg", "-L", name], capture_output=True, text=True, check=False)
        if not done.returncode:
            yield from (Path(line) for line in done.stdout.splitlines())
            return
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in files)


def _text(path: Path) -> str | None:
    name = path.name.lower()
    if not name.endswith(_TEXTS) or name.startswith(_ABOUT) or not path.is_file():
        return None
    data = path.read_bytes()
    try:
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError):
        return None  # of another encoding: not a text that could be sent
    text = text.replace("\r\n", "\n").strip()
    return text if len(text) >= _LEAST_CHARS else None
