"""Where the training text comes from: free texts and permissively licensed Python on this machine.

``packages``: the standard library of a Python installation and the named site packages.
``texts``: a folder with unpacked Debian packages (``dpkg-deb -x``) and the source archive of the
``shakespeare`` package; ``README.md`` of the checkpoint names them with their licences.
Each document is one file (or one book) and belongs to exactly one side of the split.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path


@dataclass(frozen=True)
class Document:
    """One text with its origin. ``domain`` is ``code`` or ``prose``."""

    source: str
    path: str
    domain: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Source:
    """A text source: its name, licence, and the share of its documents that is kept."""

    name: str
    licence: str
    domain: str
    share: float = 1.0


STDLIB = Source("cpython", "PSF-2.0", "code")
PACKAGES = (
    Source("sympy", "BSD-3-Clause", "code", 0.6),
    Source("pandas", "BSD-3-Clause", "code", 0.6),
    Source("scipy", "BSD-3-Clause", "code", 0.7),
    Source("numpy", "BSD-3-Clause", "code"),
    Source("matplotlib", "PSF-based (matplotlib licence)", "code"),
    Source("networkx", "BSD-3-Clause", "code"),
    Source("mypy", "MIT", "code"),
    Source("pip", "MIT", "code"),
    Source("setuptools", "MIT", "code"),
    Source("fontTools", "MIT", "code"),
    Source("pygments", "BSD-2-Clause", "code"),
    Source("huggingface_hub", "Apache-2.0", "code"),
    Source("datasets", "Apache-2.0", "code"),
    Source("pydantic", "MIT", "code"),
    Source("_pytest", "MIT", "code"),
    Source("rich", "MIT", "code"),
    Source("PIL", "MIT-CMU", "code"),
    Source("mpmath", "BSD-3-Clause", "code"),
    Source("torch", "BSD-3-Clause", "code", 0.5),
    Source("transformers", "Apache-2.0", "code", 0.2),
    Source("pyarrow", "Apache-2.0", "code"),
)
TEXTS = (
    Source("bible-kjv", "public domain", "prose"),
    Source("shakespeare", "public domain", "prose"),
    Source("python3.11-doc", "PSF-2.0", "prose"),
    Source("debian-handbook", "GPL-2.0-or-later or CC-BY-SA-3.0", "prose"),
    Source("debian-reference-en", "GPL-2.0-or-later", "prose"),
    Source("developers-reference", "GPL-2.0-or-later", "prose"),
    Source("gnome-user-docs", "CC-BY-SA-3.0", "prose"),
    Source("debmake-doc", "MIT", "prose"),
    Source("wordnet-base", "WordNet 3.0 licence", "prose"),
)

_SKIPPED_TAGS = {"script", "style", "head", "nav", "footer", "title", "info"}
_BLOCK_TAGS = {"p", "li", "h1", "h2", "h3", "h4", "dt", "dd", "tr", "pre", "div", "item", "section"}
_TABLES = re.compile(
    r"(?:/encodings/|/idlelib/Icons|/unicode|_data\.py$|/data/|/locale|/pydoc_data/|/_vendor/)"
)


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._skipping = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipping += tag in _SKIPPED_TAGS
        if tag in _BLOCK_TAGS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._skipping = max(0, self._skipping - (tag in _SKIPPED_TAGS))
        if tag in _BLOCK_TAGS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self.parts.append(data)


def words_of(markup: str) -> str:
    """The reading text of HTML or Mallard markup."""
    parser = _Words()
    parser.feed(markup)
    text = re.sub(r"[ \t\u00a0]+", " ", "".join(parser.parts).replace("\u00b6", ""))
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def python_files(root: Path, source: Source) -> Iterator[Document]:
    """Readable Python below ``root``: no tables, giants, mostly-numeric or non-ASCII files."""
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if "site-packages" in name or "__pycache__" in name or _TABLES.search(f"/{name}"):
            continue
        if not 400 <= path.stat().st_size <= 250_000:
            continue
        if _fraction(f"{source.name}/{name}") >= source.share:
            continue
        try:
            text = path.read_text("utf-8").replace("\r\n", "\n").expandtabs(4)
        except UnicodeDecodeError:
            continue
        digits = sum(character.isdigit() for character in text)
        strange = sum(ord(character) > 127 for character in text)
        if digits > 0.15 * len(text) or strange > 0.02 * len(text):
            continue
        yield Document(source.name, name, "code", text)


def prose(folder: Path, names: Iterable[Source] = TEXTS) -> Iterator[Document]:
    """Documents of the unpacked text packages below ``folder`` (those that are there)."""
    readers: dict[str, Callable[[Path, Source], Iterator[Document]]] = {
        "bible-kjv": _bible,
        "shakespeare": _shakespeare,
        "wordnet-base": _wordnet,
        "debian-handbook": lambda f, s: _markup(f, s, "**/en-US/*.html"),
        "debian-reference-en": lambda f, s: _markup(f, s, "**/ch*.en.html"),
        "debmake-doc": lambda f, s: _markup(f, s, "**/ch*.en.html"),
        "gnome-user-docs": lambda f, s: _markup(f, s, "**/help/C/**/*.page"),
        "developers-reference": lambda f, s: _plain(f, s, "**/developers-reference/_sources/*.txt"),
        "python3.11-doc": lambda f, s: _plain(f, s, "**/_sources/**/*.txt"),
    }
    for source in names:
        yield from readers[source.name](folder / source.name, source)


def _fraction(key: str) -> float:
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) / 2**32


def _markup(root: Path, source: Source, pattern: str) -> Iterator[Document]:
    for path in sorted(root.glob(pattern)):
        text = words_of(path.read_text("utf-8", "replace"))
        if len(text) > 300:
            yield Document(source.name, path.relative_to(root).as_posix(), "prose", text)


def _plain(root: Path, source: Source, pattern: str) -> Iterator[Document]:
    for path in sorted(root.glob(pattern)):
        text = path.read_text("utf-8", "replace")
        if len(text) > 300:
            yield Document(source.name, path.relative_to(root).as_posix(), "prose", text)


def _shakespeare(root: Path, source: Source) -> Iterator[Document]:
    for path in sorted(root.rglob("*.txt")):
        if "texts" not in path.parts or path.name == "metadata.txt":
            continue
        text = path.read_text("utf-8", "replace").replace("\r\n", "\n")
        strange = sum(ord(character) > 127 for character in text)
        if len(text) > 3000 and strange < 0.005 * len(text):
            yield Document(source.name, path.relative_to(root).as_posix(), "prose", text)


def _bible(root: Path, source: Source) -> Iterator[Document]:
    """One document per ten chapters' worth, read through the package's own program."""
    if not root.exists():
        return
    run = subprocess.run(
        ["bible", "-f", "gen1:1-rev22:21"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    books: dict[str, list[str]] = {}
    for line in run.stdout.decode("latin-1").splitlines():
        place, _, words = line.partition(" ")
        match = re.match(r"(\d?[A-Za-z]+)(\d+):(\d+)$", place)
        if match:
            book, chapter, verse = match.groups()
            part = f"{book}-{(int(chapter) - 1) // 10:02d}"
            lines = books.setdefault(part, [])
            if verse == "1":
                lines.append(f"\nChapter {chapter}\n")
            lines.append(f"{verse} {words.strip()}")
    for part, lines in books.items():
        yield Document(source.name, part, "prose", "\n".join(lines).strip() + "\n")


def _wordnet(root: Path, source: Source) -> Iterator[Document]:
    """Dictionary entries, five hundred to a document."""
    for path in sorted(root.rglob("data.*")):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8", errors="replace") as handle:
            lines = [line for line in handle if not line.startswith(" ") and " | " in line]
        entries = []
        for line in lines:
            head, _, gloss = line.partition(" | ")
            entries.append(f"{head.split()[4].replace('_', ' ')}: {gloss.strip()}")
        for start in range(0, len(entries), 500):
            text = "\n".join(entries[start : start + 500]) + "\n"
            yield Document(source.name, f"{path.name}-{start // 500:03d}", "prose", text)
