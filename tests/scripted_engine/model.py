"""The scripted model: a tokenizer, outputs that follow from the prompt, a prefix cache.

Tokens: id i < 50,000 is the word " w<i>"; 50,000 + b is the byte b. Output ids follow from
the prompt's ids alone (SHA-256), so every honest mode gives the same ones.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

BYTE_BASE = 50_000
VOCAB = 4096
EOS = 2
_WORD = re.compile(rb" w(\d{1,5})")


def tokenize(text: str) -> list[int]:
    data = text.encode("utf-8")
    ids: list[int] = []
    at = 0
    while at < len(data):
        word = _WORD.match(data, at)
        if word and int(word[1]) < BYTE_BASE and str(int(word[1])).encode() == word[1]:
            ids.append(int(word[1]))
            at = word.end()
        else:
            ids.append(BYTE_BASE + data[at])
            at += 1
    return ids


def detokenize(ids: Sequence[int]) -> str:
    data = b"".join(
        bytes([i - BYTE_BASE]) if BYTE_BASE <= i < BYTE_BASE + 256 else b" w%d" % i for i in ids
    )
    return data.decode("utf-8", "replace")


def output_ids(prompt: Sequence[int], count: int, *, diverge_at: int | None = None) -> list[int]:
    """`count` ids that follow from the prompt; from diverge_at on, different ones."""
    seed = hashlib.sha256(struct.pack(f"<{len(prompt)}I", *prompt)).digest()
    out = []
    for k in range(count):
        salt = b"other" if diverge_at is not None and k >= diverge_at else b""
        digest = hashlib.sha256(seed + struct.pack("<I", k) + salt).digest()
        out.append(3 + int.from_bytes(digest[:4], "little") % (VOCAB - 3))
    return out


def next_two(ids: Sequence[int]) -> tuple[int, int]:
    """What follows `ids`: the honest token, and the one that a diverging mode takes there.

    `ids` may be a prompt and the beginning of its honest output.
    """
    for cut in range(1, len(ids)):
        done = len(ids) - cut
        if output_ids(ids[:cut], 1)[0] == ids[cut] and output_ids(ids[:cut], done) == list(
            ids[cut:]
        ):
            break
    else:
        cut, done = len(ids), 0
    prompt = ids[:cut]
    honest, other = output_ids(prompt, done + 1), output_ids(prompt, done + 1, diverge_at=done)
    return honest[-1], other[-1]


@dataclass
class PrefixCache:
    """Longest common prefix with anything seen since the last flush, in whole pages."""

    page: int = 1
    _seen: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)

    def match(self, prompt: Sequence[int], salt: str = "") -> int:
        best = 0
        for past in self._seen.get(salt, []):
            same = 0
            for a, b in zip(past, prompt, strict=False):
                if a != b:
                    break
                same += 1
            best = max(best, same)
        # The last prompt token is always computed: its output is what is wanted.
        best = min(best, len(prompt) - 1)
        return best - best % self.page

    def add(self, ids: Sequence[int], salt: str = "") -> None:
        self._seen.setdefault(salt, []).append(tuple(ids))

    def clear(self) -> int:
        held = sum(len(ids) for kept in self._seen.values() for ids in kept)
        self._seen.clear()
        return held


@dataclass(frozen=True)
class Speculation:
    """What the scripted mode did for one request; the identity N = 1 + C + V + T holds."""

    V: int = 0
    P: int = 0
    C: int = 0
    T: int = 0
    histogram: tuple[int, ...] = ()


def plan_steps(
    count: int, accept: Sequence[int | None], width: int
) -> tuple[list[int], Speculation]:
    """(tokens of each event, counts): the first token alone, then one step after another.

    accept: accepted drafts of each verify step in turn, None for a step without proposals.
    The last steps take no more than what is left.
    """
    if count <= 0:
        return [], Speculation()
    sizes = [1]
    verify = correct = plain = 0
    histogram = [0] * (width + 1)
    left, turn = count - 1, 0
    while left > 0:
        taken = accept[turn % len(accept)] if accept else None
        turn += 1
        if taken is None:
            plain += 1
            sizes.append(1)
            left -= 1
            continue
        taken = min(taken, left - 1)
        verify += 1
        correct += taken
        histogram[taken] += 1
        sizes.append(taken + 1)
        left -= taken + 1
    shown = tuple(histogram) if verify else ()
    return sizes, Speculation(verify, verify * width, correct, plain, shown)
