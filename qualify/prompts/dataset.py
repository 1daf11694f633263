"""Prompts from a data set, through the optional `datasets` library.

dataset:NAME[:CONFIG][@SPLIT][#COLUMN]: NAME is a name the library knows, a folder, or a
local .json, .jsonl, .parquet, .csv or .txt file (which needs no network). Without #COLUMN
the first of the usual columns is taken; without @SPLIT, `train` where there is one.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from qualify.errors import UsageError
from qualify.prompts.conversations import conversation
from qualify.prompts.corpus import Corpus, Document, make_corpus

TEXTS = ("text", "content", "code", "document", "article")
PROMPTS = ("prompt", "messages", "conversations", "question", "instruction", "input")
_BUILDERS = {
    ".json": "json",
    ".jsonl": "json",
    ".parquet": "parquet",
    ".csv": "csv",
    ".txt": "text",
}
_LIMIT_CHARS = 200_000_000  # rows beyond this many characters are not read
_NAME = re.compile(
    r"dataset:(?P<name>[^@#]+?)(?::(?P<config>[^@#:/]+))?(?:@(?P<split>[^#]+))?(?:#(?P<column>.+))?"
)


def open_dataset(source: str) -> Corpus:
    """The corpus that a dataset: source names.

    Columns of texts are cut at any paragraph; columns of prompts or messages give whole
    prompts, one a row. Raises UsageError where the library, the data or the column is absent.
    """
    match = _NAME.fullmatch(source)
    if match is None:
        raise UsageError(
            f"'{source}' does not name a data set.", "Write dataset:NAME[:CONFIG][@SPLIT][#COLUMN]."
        )
    rows, columns = _rows(match["name"], match["config"], match["split"])
    column = match["column"] or next((c for c in (*TEXTS, *PROMPTS) if c in columns), None)
    if column is None or column not in columns:
        raise UsageError(
            f"{source} has no column {column or 'of text'}; it has {', '.join(columns)}.",
            "Name one: dataset:NAME#COLUMN.",
        )
    documents: list[Document] = []
    chars = 0
    for number, row in enumerate(rows):
        document = _document(source, number, row[column])
        if document is None:
            continue
        documents.append(document)
        chars += len(document.text)
        if chars > _LIMIT_CHARS:
            break
    if not documents:
        raise UsageError(f"{source} has no text in column {column}.", "Name another column.")
    return make_corpus(source, documents, whole=column in PROMPTS or bool(documents[0].messages))


def _document(source: str, number: int, value: Any) -> Document | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return Document(f"row {number}", value.strip()) if value.strip() else None
    try:
        if not isinstance(value, list):
            raise ValueError("neither a text nor a list of messages")
        return conversation(f"row {number}", value)
    except ValueError as error:
        raise UsageError(
            f"{source}, row {number}: {error}.", "Name a column of texts or of messages."
        ) from error


def _rows(name: str, config: str | None, split: str | None) -> tuple[Any, list[str]]:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise UsageError(
            "Prompts from a data set need the `datasets` library, which is not installed.",
            "pip install datasets, or give a .jsonl file of prompts as the source.",
        ) from error
    path = Path(name).expanduser()
    options: dict[str, Any] = {"name": config}
    builder = name
    if path.suffix in _BUILDERS and path.is_file():
        builder, options["data_files"] = _BUILDERS[path.suffix], str(path)
    try:
        found = datasets.load_dataset(builder, split=split, **options)
    except Exception as error:  # the library raises many kinds, some of other packages
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"The data set '{name}' cannot be loaded ({reason}).",
            "Check name, configuration and split; without a network give a local file or folder.",
        ) from error
    if isinstance(found, dict):
        if len(found) > 1 and "train" not in found:
            raise UsageError(
                f"The data set '{name}' has the splits {', '.join(found)}.",
                "Name one: dataset:NAME@SPLIT.",
            )
        found = found["train"] if "train" in found else next(iter(found.values()))
    return found, list(found.column_names)
