"""Unique heads: a short title before each prompt, so that no two prompts share a prefix.

A prefix cache matches leading tokens. With a title whose first word is used by no other
prompt of the workload, two prompts share nothing at all, and streams (warm-up, probe,
measured) never share a first word. The words are common English ones, each a single token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from qualify.prompts.draw import draw, shuffled
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.tokens import Tokenizer

_PART = re.compile(r"[A-Za-z]{2,}")
STREAMS = ("measured", "warmup", "probe", "other")


def lane(stream: str) -> int:
    """Which of the four disjoint sets of first words a stream uses."""
    return STREAMS.index(stream) if stream in STREAMS else STREAMS.index("other")


@dataclass(frozen=True)
class Lexicon:
    """Words that are one token each: `first` at the start of a text, `follow` after a blank.

    Empty when the vocabulary is too small for whole words; heads are then spelled out.
    """

    first: tuple[str, ...]
    follow: tuple[str, ...]


_PLENTY = 512  # first words wanted: 128 for each stream
_FEW = 64


@lru_cache(maxsize=8)
def lexicon(tokenizer: Tokenizer) -> Lexicon:
    words = (Path(__file__).parent / "words.txt").read_text("utf-8").split()
    first = _single(tokenizer, [*words, *(w.capitalize() for w in words)])
    if len(first) < _PLENTY:
        # A small vocabulary: parts of words serve as well at the start of a text.
        known = set(first)
        parts = sorted(t for t in tokenizer.backend.get_vocab() if _PART.fullmatch(t))
        first += [p for p in _single(tokenizer, parts) if p not in known]
    if len(first) < _FEW:
        return Lexicon((), ())
    anchor = first[0]
    alone = tokenizer.encode(anchor)
    pairs = tokenizer.encode_many([f"{anchor} {w}" for w in words])
    follow = [w for w, ids in zip(words, pairs, strict=True) if len(ids) == 2 and ids[:1] == alone]
    return Lexicon(tuple(first), tuple(follow)) if len(follow) >= _FEW else Lexicon((), ())


def _single(tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    found = tokenizer.encode_many(texts)
    return [text for text, ids in zip(texts, found, strict=True) if len(ids) == 1]


class Heads:
    """The heads of one workload's prompts at one shape."""

    SHORT = 3

    def __init__(self, spec: PromptSpec, tokenizer: Tokenizer) -> None:
        self.key = (spec.campaign, spec.workload, spec.tokens, spec.seed)
        self.words = lexicon(tokenizer)
        # Every stream of the workload shuffles alike and takes every fourth word.
        self.lane = lane(spec.stream)
        self.stream = spec.stream
        self.first = shuffled(self.words.first, "first", *self.key)
        usable = len(self.first) - len(self.first) % len(STREAMS)
        self.first = self.first[:usable]

    @property
    def one_token_words(self) -> bool:
        return bool(self.first)

    def text(self, index: int, words: int = SHORT) -> str:
        """A head of that many words (one token each where the vocabulary allows it)."""
        if not self.first:
            return self._spelled(index, words)
        number = index * len(STREAMS) + self.lane
        turn, at = divmod(number, len(self.first))
        follow = self.words.follow
        rest = []
        for i in range(1, words):
            # Second words differ between prompts whose first word had to be used again.
            base = draw("follow", *self.key, self.stream, at if i == 1 else index, i)
            rest.append(follow[(base + (turn if i == 1 else 0)) % len(follow)])
        return " ".join([self.first[at], *rest])

    def _spelled(self, index: int, words: int) -> str:
        """Letters that spell the number; further "words" are one rare letter each."""
        letters = "abcdefghijklmnopqrstuvwx"
        number = index * len(STREAMS) + self.lane
        spelled = letters[number % 24]
        number //= 24
        for i in range(3):
            spelled += letters[(number // 24**i) % 24]
        return spelled + "".join("zqxjkv"[draw(*self.key, index, i) % 6] for i in range(words - 1))
