"""Where prompt text comes from, by the name a campaign gives it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from qualify.errors import UsageError
from qualify.paths import corpora_dir
from qualify.prompts.corpus import Corpus, Document, make_corpus

BUNDLED = (
    *("corpora/code", "corpora/prose"),
    *("corpora/mixed", "corpora/copy", "corpora/recall"),
)
_MIXED_CHARS = 900
_LIMIT_BYTES = 2 << 30
_KINDS = f"{', '.join(BUNDLED)}, a path, dataset:NAME or package:NAME"


def open_source(source: str, corpora_root: Path | None = None) -> Corpus:
    """The corpus that `source` names.

    corpora/code, corpora/prose: bundled. corpora/mixed: the two in alternating chunks.
    corpora/copy, corpora/recall: the texts of those workloads (copy: the same as mixed,
    recall: the same as prose). PATH.jsonl: a user's own prompts or conversations. Any
    other path: a text file, or a folder of them.
    dataset:NAME: through the optional `datasets` library. package:NAME: the texts of a free
    package that is installed. Raises UsageError with a remedy.
    """
    root = corpora_root or corpora_dir()
    if source in ("corpora/mixed", "corpora/copy"):
        return _mixed(source, _folder(str(root / "code")), _folder(str(root / "prose")))
    if source == "corpora/recall":
        return replace(_folder(str(root / "prose")), source=source)
    if source in BUNDLED:
        return replace(_folder(str(root / source.removeprefix("corpora/"))), source=source)
    if source.startswith("corpora/"):
        raise UsageError(f"There is no bundled corpus '{source}'.", f"Use {_KINDS}.")
    if source.startswith("dataset:"):
        from qualify.prompts.dataset import open_dataset

        return open_dataset(source)
    if source.startswith("package:"):
        from qualify.prompts.packages import open_package

        return open_package(source)
    path = Path(source).expanduser()
    if path.suffix in (".jsonl", ".ndjson") and path.is_file():
        from qualify.prompts.jsonl import read_jsonl

        return read_jsonl(path)
    if path.is_file():
        return make_corpus(source, [Document(path.name, _read(path))])
    if path.is_dir():
        return replace(_folder(str(path)), source=source)
    raise UsageError(f"There is no prompt source '{source}'.", f"Use {_KINDS}.")


@lru_cache(maxsize=8)
def _folder(folder: str) -> Corpus:
    root = Path(folder)
    files = [p for p in sorted(root.rglob("*")) if p.is_file() and _is_text_name(root, p)]
    size = sum(p.stat().st_size for p in files)
    if size > _LIMIT_BYTES:
        raise UsageError(
            f"{folder} holds {size / 1e9:.1f} GB of text; at most 2 GB are read.",
            "Name a smaller folder or one file.",
        )
    documents = [Document(p.relative_to(root).as_posix(), _read(p)) for p in files]
    documents = [d for d in documents if d.text]
    if not documents:
        raise UsageError(
            f"{folder} holds no text files.", "Name a folder of UTF-8 texts, or a .jsonl file."
        )
    return make_corpus(folder, documents)


def _is_text_name(root: Path, path: Path) -> bool:
    parts = path.relative_to(root).parts
    hidden = any(part.startswith(".") for part in parts)
    about = parts[-1].upper().startswith(("LICENSE", "COPYING", "SOURCES"))
    return not hidden and not about


def _read(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text (byte {error.start}).", "Convert it, or leave it out."
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).", "Check the path.") from error
    return text.replace("\r\n", "\n").lstrip("\ufeff").strip()


@lru_cache(maxsize=4)
def _mixed(source: str, code: Corpus, prose: Corpus) -> Corpus:
    """Chunks of code and prose in turn, at paragraph boundaries.

    Of the longer side as many are taken as the shorter has, evenly over its length.
    """
    sides = [_chunks(code), _chunks(prose)]
    count = min(map(len, sides))
    documents = []
    for i in range(count):
        for name, chunks in zip(("code", "prose"), sides, strict=True):
            documents.append(Document(f"{name}/{i:05}", chunks[i * len(chunks) // count]))
    return make_corpus(source, documents)


def _chunks(corpus: Corpus) -> list[str]:
    found: list[str] = []
    for document in corpus.documents:
        piece = ""
        for block in re.split(r"\n\s*\n(?=\S)", document.text):
            piece = f"{piece}\n\n{block}" if piece else block
            if len(piece) >= _MIXED_CHARS:
                found.append(piece)
                piece = ""
        if piece:
            found.append(piece)
    return found
