"""The tokenizer inside a .gguf file.

Only the header is read (the key-value part of the GGUF format, versions 2 and 3), so a
model of any size costs a few megabytes. Byte-level BPE vocabularies are built with
`tokenizers`; every other kind is refused, because an almost right tokenizer is worse than
none. The split patterns follow llama.cpp's source for each `tokenizer.ggml.pre`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from qualify.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
_STRING, _ARRAY = 8, 9

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _modern(digits: str, marks: str = "") -> str:
    letters = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}{marks}]+"
    signs = rf" ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*"
    return f"{_CONTRACTIONS}|{letters}|{digits}|{signs}|{_LINES}"


# name in the file -> patterns applied one after the other; one digit a token where `\p{N}`
# comes first.
PRE_TOKENIZERS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "starcoder": (r"\p{N}", _GPT2),
    "llama-bpe": (_modern(r"\p{N}{1,3}"),),
    "llama3": (_modern(r"\p{N}{1,3}"),),
    "qwen2": (_modern(r"\p{N}"),),
    "qwen35": (_modern(r"\p{N}", marks=r"\p{M}"),),
}
_WHOLE_WORDS = {"llama-bpe", "llama3"}  # a piece that is in the vocabulary is never split
_BOS_BY_DEFAULT = {"llama-bpe", "llama3"}
_CONTROL, _USER_DEFINED = 3, 4


def read_metadata(path: Path) -> dict[str, Any]:
    """Every key-value pair of a GGUF header. Raises UsageError for any other file."""
    try:
        with path.open("rb") as file:
            magic, version = file.read(4), struct.unpack("<I", file.read(4))[0]
            if magic != b"GGUF" or version not in (2, 3):
                raise ValueError(f"magic {magic!r}, version {version}")
            _, pairs = struct.unpack("<QQ", file.read(16))
            return {_text(file): _value(file, _u32(file)) for _ in range(pairs)}
    except (ValueError, struct.error, KeyError, MemoryError, OverflowError) as error:
        raise UsageError(
            f"{path} is not a GGUF file this program can read ({error}).",
            "Give a .gguf of version 2 or 3, or a Hugging Face folder with tokenizer.json.",
        ) from error


def _u32(file: BinaryIO) -> int:
    return int(struct.unpack("<I", file.read(4))[0])


def _text(file: BinaryIO) -> str:
    size = struct.unpack("<Q", file.read(8))[0]
    if size > 1 << 28:
        raise ValueError("a string longer than 256 MB")
    return file.read(size).decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        if inner in (_STRING, _ARRAY):
            return [_value(file, inner) for _ in range(count)]
        size = struct.calcsize("<" + _SCALARS[inner])
        return list(struct.unpack(f"<{count}{_SCALARS[inner]}", file.read(count * size)))
    code = "<" + _SCALARS[kind]
    return struct.unpack(code, file.read(struct.calcsize(code)))[0]


def bos_ids(metadata: dict[str, Any]) -> tuple[int, ...]:
    """The ids that the server puts before a text: the BOS, or nothing."""
    pre = metadata.get("tokenizer.ggml.pre", "")
    if not metadata.get("tokenizer.ggml.add_bos_token", pre in _BOS_BY_DEFAULT):
        return ()
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    return () if bos is None else (int(bos),)


def build_backend(path: Path, metadata: dict[str, Any]) -> Backend:
    """A `tokenizers` tokenizer with the file's vocabulary, merges and split pattern.

    Raises UsageError for vocabularies other than byte-level BPE and for split patterns that
    were not checked against llama.cpp.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    remedy = (
        "Set `tokenizer:` in the campaign to the model's Hugging Face folder or tokenizer.json."
    )
    if model != "gpt2":
        raise UsageError(
            f"{path} holds a {model or 'missing'} tokenizer; "
            "only byte-level BPE ('gpt2') can be built from a .gguf file.",
            remedy,
        )
    if pre not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise UsageError(
            f"{path} splits text the '{pre}' way, which is not among those known here ({known}).",
            remedy,
        )
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds: list[int] = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    backend = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=merges,
            ignore_merges=pre in _WHOLE_WORDS,
        )
    )
    splits: list[Any] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in PRE_TOKENIZERS[pre]
    ]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    backend.decoder = decoders.ByteLevel()
    added = [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    backend.add_tokens(added)
    return backend
