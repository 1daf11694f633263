"""Statements put between the sentences of a text, each near its depth; sizes counted in tokens."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from qualify.prompts.corpus import Ring, Segment
from qualify.prompts.draw import draw
from qualify.prompts.heads import Heads
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.tokens import Tokenizer

TAIL = 64  # tokens between the last statement and the question, where there is room
_SENTENCE_END = re.compile(r"(?<=[a-z][.!?])(?= [A-Z])")
_BLANK = re.compile(r"(?<=\S)(?= \S)")


@dataclass(frozen=True)
class Statement:
    """One needle: what is written, the code in it, and the depth (0 to 1) that is asked for."""

    sentence: str
    code: str
    depth: float


@dataclass(frozen=True)
class Placed:
    """Where a code's first token stands: position from 0, depth = position / N."""

    code: str
    asked_depth: float
    position: int
    depth: float


@dataclass(frozen=True)
class Haystack:
    """ids include BOS; exact: encode(text) == ids was proven. source_chars: how much of the
    source was used, loops: how often that is more than all of it."""

    text: str
    ids: tuple[int, ...]
    exact: bool
    needles: tuple[Placed, ...]
    source_chars: int
    repeated: bool


@dataclass(frozen=True)
class Piece:
    """A stretch of text with its ids; needle: which statement it is, None for filler."""

    text: str
    ids: array[int]
    needle: int | None = None


class Draft:
    """What a prompt is made of: title, filler with the statements in it, not yet cut to size."""

    def __init__(
        self,
        tokens: int,
        statements: tuple[Statement, ...],
        around: tuple[str, str],
        loop: Ring,
        tokenizer: Tokenizer,
        key: tuple[str | int, ...],
    ) -> None:
        self.tokens, self.statements, self.loop = tokens, statements, loop
        self.tokenizer, self.before, self.after = tokenizer, *around
        spec = PromptSpec("needles", "/".join(map(str, key)), loop.corpus.source, tokens, 1, 0)
        self.heads = Heads(spec, tokenizer)
        self.room = tokens - len(tokenizer.prefix) - len(tokenizer.suffix)
        position = draw("needles", *key, "place") % max(1, loop.chars)
        self.place = loop.paragraph(*loop.place(position))
        self.needle_texts = [" " + s.sentence for s in statements]
        self.needle_ids = [array("I", i) for i in tokenizer.encode_many(self.needle_texts)]
        self.filler_text = ""

    def head(self, words: int) -> str:
        return f"{self.before}{self.heads.text(0, words)}\n\n"

    def _read(self, wanted: int) -> list[Segment]:
        body: list[Segment] = []
        have = 0
        source: Iterator[Segment] = self.loop.read(*self.place, wanted)
        while have < wanted:
            body.append(next(source))
            have += len(body[-1].ids)
        return body

    def placed(self, filler: int) -> list[Piece]:
        """The filler with the statements in it; the last piece is filler, to be cut."""
        body = self._read(filler + TAIL)
        pieces: list[Piece] = []
        order = sorted(range(len(self.statements)), key=lambda i: self.statements[i].depth)
        rest = iter(body)
        text, ids = "", array("I")
        at = len(self.tokenizer.encode(self.head(Heads.SHORT))) + len(self.tokenizer.prefix)
        for number in order:
            lead = self.lead(number)
            wanted = round(self.statements[number].depth * self.tokens) - lead
            while at + len(ids) < wanted:
                following = next(rest, None)
                if following is None:
                    break
                if ids:
                    pieces.append(Piece(text, ids))
                    at += len(ids)
                text, ids = following.text, following.ids
            most = self._most(number, order) - at
            cut = self._cut(text, ids, max(0, min(wanted - at, most)), max(0, most))
            first = Piece(text[:cut], self.encode(text[:cut]))
            text, ids = text[cut:], self.encode(text[cut:])
            if first.text or not pieces:  # the title is encoded together with a piece of filler
                pieces.append(first)
            pieces.append(Piece(self.needle_texts[number], self.needle_ids[number], number))
            at += len(first.ids) + len(self.needle_ids[number])
        for following in rest:
            if len(ids) > 0:
                pieces.append(Piece(text, ids))
            text, ids = following.text, following.ids
        pieces.append(Piece(text, ids))
        return pieces

    def lead(self, number: int) -> int:
        """Tokens of the statement before its code."""
        before, _, _ = self.needle_texts[number].partition(self.statements[number].code)
        return len(self.tokenizer.encode(before.rstrip(" ")))

    def encode(self, text: str) -> array[int]:
        return array("I", self.tokenizer.encode(text))

    def _most(self, number: int, order: list[int]) -> int:
        """The last token at which a statement may begin, so that what follows it fits."""
        behind = order[order.index(number) :]
        stated = sum(len(self.needle_ids[i]) + TAIL // 4 for i in behind)
        return self.room - len(self.tokenizer.encode(self.after)) - stated

    def _cut(self, text: str, ids: array[int], wanted: int, most: int) -> int:
        """The end of a sentence near `wanted` tokens into the text, else of a word."""
        guess = self._chars(text, ids, wanted)
        reach = max(24, round(self.tokens * 0.01)) * 3  # about 3 characters a token
        low, high = max(0, guess - reach), min(len(text), guess + reach)
        if most - wanted < reach:
            high = min(high, self._chars(text, ids, most) + 1)
        for pattern in (_SENTENCE_END, _BLANK):
            found = [m.start() for m in pattern.finditer(text, low, high)]
            if found:
                return min(found, key=lambda place: abs(place - guess))
        return guess

    def _chars(self, text: str, ids: array[int], wanted: int) -> int:
        """About how many characters of `text` are its first `wanted` tokens."""
        decoded = self.tokenizer.decode(ids[:wanted])
        if text.startswith(decoded):
            return len(decoded)
        guess = min(len(text), len(text) * wanted // max(1, len(ids)))
        for _ in range(3):  # decoding does not give the text back: go by counts
            have = max(1, len(self.tokenizer.encode(text[:guess])))
            guess = min(len(text), guess * wanted // have)
        return guess
