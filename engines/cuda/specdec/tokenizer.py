"""The checkpoint's tokenizer and chat template: text to ids, ids to bytes, messages to a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as FastTokenizer


class TokenizerError(ValueError):
    """The tokenizer's files or the text given to it cannot be used; the message says why."""


def _byte_alphabet() -> dict[str, int]:
    """Character of a byte-level vocabulary -> byte, as GPT-2 defined it.

    Printable Latin-1 stands for itself; the other bytes are moved to U+0100 and up in order.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in plain}
    moved = (byte for byte in range(256) if byte not in set(plain))
    alphabet.update({chr(256 + rank): byte for rank, byte in enumerate(moved)})
    return alphabet


BYTE_OF = _byte_alphabet()


@dataclass(frozen=True)
class Tokenizer:
    """A byte-level BPE tokenizer (`tokenizer.json`) with the checkpoint's chat template."""

    fast: FastTokenizer
    chat_template: str | None = None
    special_strings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` of a folder.

        Raises TokenizerError when there is no usable byte-level tokenizer.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(
                f"{path} does not exist. Save the tokenizer in the `tokenizers` format there."
            )
        try:
            fast = FastTokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(f"{path} cannot be read as a tokenizer: {error}.") from error
        decoder = json.loads(fast.to_str()).get("decoder") or {}
        if "ByteLevel" not in json.dumps(decoder):
            raise TokenizerError(
                f"{path} decodes with {decoder.get('type') or 'nothing'}, but only byte-level BPE "
                "can be streamed exactly. Use a byte-level tokenizer."
            )
        config_path = folder / "tokenizer_config.json"
        config = json.loads(config_path.read_text("utf-8")) if config_path.is_file() else {}
        return cls(fast, _find_template(folder, config), _special_strings(config))

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary, added tokens included."""
        return int(self.fast.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text. Raises TokenizerError for text that is no valid Unicode."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"The text has a lone surrogate at character {error.start}, which is no valid "
                "Unicode. Send well-formed text."
            ) from error
        return list(self.fast.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of whole ids; bytes that are no UTF-8 become U+FFFD."""
        parts = [
            self.token_bytes(i) for i in ids if not (skip_special_tokens and self.is_special(i))
        ]
        return b"".join(parts).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for; empty for an id outside the vocabulary."""
        return self._bytes_by_id.get(token_id, b"")

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a control token, left out of text by default."""
        return token_id in self._special_ids

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self.fast.get_added_tokens_decoder()
        return frozenset(i for i, token in added.items() if token.special)

    @cached_property
    def _bytes_by_id(self) -> dict[int, bytes]:
        added = self.fast.get_added_tokens_decoder()
        table: dict[int, bytes] = {}
        for token, token_id in self.fast.get_vocab(with_added_tokens=True).items():
            if token_id in added or any(char not in BYTE_OF for char in token):
                table[token_id] = token.encode("utf-8")
            else:
                table[token_id] = bytes(BYTE_OF[char] for char in token)
        return table

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text of a conversation, by the checkpoint's template in a sandbox.

        Raises TokenizerError when there is no template or the template refuses the messages.
        """
        if self._template is None:
            raise TokenizerError(
                "The checkpoint has no chat template. Use /v1/completions or /generate."
            )
        values = {**self.special_strings, **(extra or {})}
        values.update(messages=messages, add_generation_prompt=add_generation_prompt)
        try:
            return self._template.render(**values)
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise TokenizerError(f"The chat template refused the messages: {error}") from error

    @cached_property
    def _template(self) -> jinja2.Template | None:
        if self.chat_template is None:
            return None
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        # Templates in the Hugging Face layout count on these three names.
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now(UTC).strftime(form)
        try:
            return environment.from_string(self.chat_template)
        except jinja2.TemplateSyntaxError as error:
            raise TokenizerError(f"The chat template has a syntax error: {error}.") from error


def _find_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text("utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _special_strings(config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
