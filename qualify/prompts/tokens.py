"""The one tokenizer wrapper: exact ids in, exact ids out, an identity, a chat template."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualify.errors import UsageError
from qualify.prompts.template import ChatTemplate

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_CONTROL = re.compile(r"<\|.*\|>|<\uff5c.*\uff5c>|</?(?:think|tool_\w+|tools)>|\[/?[A-Z_]+\]")


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer. Two are equal when they give equal ids for every text (`sha256`).

    prefix and suffix are the ids that a server adds around a plain text (a BOS, mostly);
    they count as prompt tokens. `special` maps control tokens to ids: they never occur
    inside content.
    """

    path: str = field(compare=False)
    backend: Backend = field(compare=False, repr=False)
    sha256: str
    prefix: tuple[int, ...] = field(compare=False)
    suffix: tuple[int, ...] = field(compare=False)
    special: dict[str, int] = field(compare=False, repr=False)
    template: ChatTemplate | None = field(compare=False, repr=False)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """From a .gguf file, a tokenizer.json, or a folder that holds one.

        Raises UsageError where there is none, or where its kind cannot be built exactly.
        """
        path = Path(path).expanduser()
        if path.is_file() and path.suffix == ".gguf":
            return _from_gguf(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            more = (
                "It has a SentencePiece model only; save it again with transformers to get one."
                if (path / "tokenizer.model").is_file()
                else "Give a Hugging Face folder, a tokenizer.json or a .gguf file."
            )
            raise UsageError(f"No tokenizer.json at {path}.", more)
        return _from_json(file)

    @property
    def vocab_size(self) -> int:
        return int(self.backend.get_vocab_size())

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self.special.values())

    @property
    def template_sha256(self) -> str | None:
        return self.template.sha256 if self.template else None

    def encode(self, text: str) -> list[int]:
        """Ids of `text` alone, special tokens written in it recognised, no BOS added."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each, on all cores."""
        found = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special tokens written out; U+FFFD where a character is cut."""
        return str(self.backend.decode(list(ids), skip_special_tokens=False))

    def count(self, text: str) -> int:
        """Prompt tokens that a server counts for the plain text `text`."""
        return len(self.prefix) + len(self.encode(text)) + len(self.suffix)

    def id_of(self, token: str) -> int | None:
        found: int | None = self.backend.token_to_id(token)
        return found


def _from_gguf(path: Path) -> Tokenizer:
    from qualify.prompts import gguf

    metadata = gguf.read_metadata(path)
    backend = gguf.build_backend(path, metadata)
    parts = {k: v for k, v in metadata.items() if k.startswith("tokenizer.ggml.")}
    tokens = metadata["tokenizer.ggml.tokens"]
    names = {"bos_token": "bos_token_id", "eos_token": "eos_token_id"}
    named = tuple(
        (name, tokens[metadata[f"tokenizer.ggml.{key}"]])
        for name, key in names.items()
        if f"tokenizer.ggml.{key}" in metadata
    )
    source = metadata.get("tokenizer.chat_template")
    return Tokenizer(
        path=str(path),
        backend=backend,
        sha256=hashlib.sha256(_canonical(parts)).hexdigest(),
        prefix=gguf.bos_ids(metadata),
        suffix=(),
        special=_special(backend),
        template=ChatTemplate(source, named) if source else None,
    )


def _from_json(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer as Backend

    data = file.read_bytes()
    try:
        backend = Backend.from_buffer(data)
    except Exception as error:  # `tokenizers` raises bare Exception
        raise UsageError(
            f"{file} is not a tokenizer.json that the tokenizers library can read ({error}).",
            "Update the tokenizers package, or save the tokenizer again with transformers.",
        ) from error
    backend.no_truncation()
    backend.no_padding()
    config = _config(file.parent)
    plain = backend.encode("a", add_special_tokens=False).ids
    full = backend.encode("a", add_special_tokens=True).ids
    at = next(i for i in range(len(full) + 1) if full[i : i + len(plain)] == plain)
    named = tuple(
        (name, value["content"] if isinstance(value, dict) else value)
        for name, value in sorted(config.items())
        if name.endswith("_token") and isinstance(value, (str, dict))
    )
    source = _template_source(file.parent, config)
    return Tokenizer(
        path=str(file),
        backend=backend,
        sha256=hashlib.sha256(data).hexdigest(),
        prefix=tuple(full[:at]),
        suffix=tuple(full[at + len(plain) :]),
        special=_special(backend),
        template=ChatTemplate(source, named) if source else None,
    )


def _special(backend: Backend) -> dict[str, int]:
    added = backend.get_added_tokens_decoder().items()
    # Control words such as <tool_call> are often not flagged special; runs of blanks and HTML
    # tags, which some vocabularies also add, are ordinary text.
    return {t.content: i for i, t in added if t.special or _CONTROL.fullmatch(t.content)}


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        message = f"{file} is not JSON ({error})."
        raise UsageError(message, "Copy it again from the model.") from error
    return found if isinstance(found, dict) else {}


def _template_source(folder: Path, config: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):  # several named templates: the one called default
        by_name = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = by_name.get("default")
    return found if isinstance(found, str) else None


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
