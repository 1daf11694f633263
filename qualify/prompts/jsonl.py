"""A user's own prompts: one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path

from qualify.errors import UsageError
from qualify.prompts.conversations import document_from
from qualify.prompts.corpus import Corpus, Document, make_corpus

_SHOWN = 5


def read_jsonl(path: Path) -> Corpus:
    """Prompts in file order; document `line N` is line N. Blank lines are skipped.

    Raises UsageError that names each bad line (the first five) and what is wrong with it.
    """
    documents: list[Document] = []
    bad: list[str] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).", "Check the path.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig"))
            if not isinstance(row, dict):
                raise ValueError("not a JSON object")
            documents.append(document_from(f"line {number}", row))
        except UnicodeDecodeError:
            bad.append(f"line {number}: not UTF-8")
        except json.JSONDecodeError as error:
            bad.append(f"line {number}: not JSON ({error.msg} at column {error.colno})")
        except ValueError as error:
            bad.append(f"line {number}: {error}")
    if bad:
        more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        raise UsageError(
            f"{path}: {'; '.join(bad[:_SHOWN])}{more}.",
            'Write {"prompt": "text"} or {"messages": [{"role": "user", "content": "text"}]} '
            "on each line, or delete the line.",
        )
    if not documents:
        raise UsageError(f"{path} holds no prompts.", "Write one JSON object a line.")
    return make_corpus(str(path), documents, whole=True)
