"""Which tokens end an output of this model: what the engine says, else what its files say.

Under `ignore_eos` an output goes on past its natural end, and drafts are accepted there at
another rate. The ids let a report find that place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualify.engines.control import integer
from qualify.engines.protocol import EngineInfo
from qualify.engines.resolve import ResolvedLaunch
from qualify.errors import UsageError
from qualify.prompts.gguf import read_metadata

_NAMES = ("eos_token_id", "eos_token_ids")
_GGUF = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))


@dataclass(frozen=True)
class EndTokens:
    """ids: sorted, at least one. source: who said so (`server_info`, a file's name)."""

    ids: tuple[int, ...]
    source: str


def end_tokens(resolved: ResolvedLaunch, info: EngineInfo) -> EndTokens | None:
    """The end tokens of what is served; None where neither engine nor files name any.

    An engine's own word wins. Of files, `generation_config.json` wins over `config.json`, as
    it does in servers, and a tokenizer's single end token is the last resort. Nothing raises.
    """
    for part, said in info.raw.items():
        if isinstance(said, Mapping) and (ids := _named(said)):
            return EndTokens(ids, part)
    for path in (resolved.model, resolved.tokenizer):
        if path is None:
            continue
        for ids, source in _in_files(Path(path)):
            if ids:
                return EndTokens(ids, source)
    return None


def _named(said: Mapping[str, Any]) -> tuple[int, ...]:
    """Ids under the usual names, at the top or in a nested configuration of the text model."""
    for name in _NAMES:
        if ids := _ids(said.get(name)):
            return ids
    for inner in ("text_config", "model_config", "hf_config", "generation_config"):
        part = said.get(inner)
        if isinstance(part, Mapping) and (ids := _named(part)):
            return ids
    return ()


def _ids(value: Any) -> tuple[int, ...]:
    listed = value if isinstance(value, list) else [value]
    found = {number for item in listed if (number := integer(item)) is not None}
    return tuple(sorted(found))


def _in_files(path: Path) -> Iterator[tuple[tuple[int, ...], str]]:
    if path.suffix == ".gguf" and path.is_file():
        try:
            metadata = read_metadata(path)
        except (OSError, UsageError):
            return
        yield _ids([metadata.get(name) for name in _GGUF]), path.name
        return
    folder = path if path.is_dir() else path.parent
    for name in ("generation_config.json", "config.json"):
        yield _named(_json(folder / name)), name
    yield _tokenizers(folder), "tokenizer_config.json"


def _tokenizers(folder: Path) -> tuple[int, ...]:
    """The id of the end token that the tokenizer's own configuration names."""
    named = _json(folder / "tokenizer_config.json").get("eos_token")
    if isinstance(named, Mapping):
        named = named.get("content")
    added = _json(folder / "tokenizer.json").get("added_tokens")
    entries = [e for e in added if isinstance(e, Mapping)] if isinstance(added, list) else []
    return _ids([e.get("id") for e in entries if named and e.get("content") == named])


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
