"""Codes hidden at stated depths in natural text: prompts of exactly N tokens.

The text is one stretch of the source. Each statement stands between two sentences of it, as
near as one comes to the depth that was asked for; what was reached is counted in tokens and
told. The size is proven by encoding the whole text, as in `fit`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from qualify.errors import CellError
from qualify.prompts.corpus import Ring, Segment
from qualify.prompts.draw import draw
from qualify.prompts.heads import Heads
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.tokens import Tokenizer

LOOKS_LIKE = re.compile(r"(?<![A-Za-z0-9-])[A-Z][A-Z0-9]-\d{4}(?![A-Za-z0-9-])")
LONG_PASSAGE = 160  # characters of a line from which a second occurrence is a repetition
_SENTENCE_END = re.compile(r"(?<=[a-z][.!?])(?= [A-Z])")
_BLANK = re.compile(r"(?<=\S)(?= \S)")
_WORD_END = re.compile(r"(?<=\S)(?=\s)")
_TAIL = 64  # tokens between the last statement and the question, at least


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
class _Piece:
    text: str
    ids: array[int]
    needle: int | None = None


def build_haystack(
    tokens: int,
    statements: tuple[Statement, ...],
    around: tuple[str, str],
    loop: Ring,
    tokenizer: Tokenizer,
    key: tuple[str | int, ...],
    *,
    repeat: bool = False,
) -> Haystack:
    """`around`: the text before (a template's opening) and after (the question and so on).

    Equal arguments give equal prompts in any process. Raises CellError where the shape is too
    short, where the source is too short and `repeat` is false, or where the text itself holds
    a code or something that looks like one.
    """
    builder = _Builder(tokens, statements, around, loop, tokenizer, key)
    found = builder.built()
    filler = builder.filler_text
    for statement in statements:
        if found.text.count(statement.code) != 1:
            raise CellError(
                f"The code {statement.code} stands {found.text.count(statement.code)} times in"
                " the prompt.",
                "Choose another seed.",
            )
    alike = LOOKS_LIKE.search(filler)
    if alike is not None:
        raise CellError(
            f"The text of {loop.corpus.source} holds {alike[0]}, which looks like a code.",
            "Give another source.",
        )
    if not repeat:
        _refuse_repetition(filler, loop, tokens, found)
    return found


def _refuse_repetition(filler: str, loop: Ring, tokens: int, found: Haystack) -> None:
    if found.repeated:
        raise CellError(
            f"{loop.corpus.source} has {loop.total_tokens():,} tokens with this tokenizer, and a"
            f" prompt of {tokens:,} needs more.",
            "Give a longer source, or write repeat: true, which is then said in the report.",
        )
    seen: set[str] = set()
    for line in filler.split("\n"):
        if len(line) < LONG_PASSAGE:
            continue
        if line in seen:
            raise CellError(
                f"{loop.corpus.source} repeats a passage: {line[:60]!r} ...",
                "Remove the repetition, or write repeat: true, which is then said in the report.",
            )
        seen.add(line)


class _Builder:
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

    def built(self) -> Haystack:
        fixed = len(self.tokenizer.encode(self.head(Heads.SHORT) + self.after))
        stated = sum(map(len, self.needle_ids))
        filler = self.room - fixed - stated
        least = _TAIL + 24 * len(self.statements)
        if filler < least:
            raise CellError(
                f"A prompt of {self.tokens:,} tokens has no room for {len(self.statements)}"
                f" codes: statements, question and template take {fixed + stated}.",
                f"Ask for at least {self.tokens - filler + least:,} tokens.",
            )
        body = self._read(filler + _TAIL)
        pieces = self._placed(body)
        return self._closed(pieces)

    def _read(self, wanted: int) -> list[Segment]:
        body: list[Segment] = []
        have = 0
        source: Iterator[Segment] = self.loop.read(*self.place, wanted)
        while have < wanted:
            body.append(next(source))
            have += len(body[-1].ids)
        return body

    def _placed(self, body: list[Segment]) -> list[_Piece]:
        """The filler with the statements in it; the last piece is filler, to be cut."""
        pieces: list[_Piece] = []
        order = sorted(range(len(self.statements)), key=lambda i: self.statements[i].depth)
        rest = iter(body)
        text, ids = "", array("I")
        at = len(self.tokenizer.encode(self.head(Heads.SHORT))) + len(self.tokenizer.prefix)
        for number in order:
            lead = self._lead(number)
            wanted = round(self.statements[number].depth * self.tokens) - lead
            while at + len(ids) < wanted:
                following = next(rest, None)
                if following is None:
                    break
                if ids:
                    pieces.append(_Piece(text, ids))
                    at += len(ids)
                text, ids = following.text, following.ids
            most = self._most(number, order) - at
            cut = self._cut(text, ids, max(0, min(wanted - at, most)), max(0, most))
            first = _Piece(text[:cut], self._encode(text[:cut]))
            text, ids = text[cut:], self._encode(text[cut:])
            if first.text or not pieces:  # the title is encoded together with a piece of filler
                pieces.append(first)
            pieces.append(_Piece(self.needle_texts[number], self.needle_ids[number], number))
            at += len(first.ids) + len(self.needle_ids[number])
        for following in rest:
            if len(ids) > 0:
                pieces.append(_Piece(text, ids))
            text, ids = following.text, following.ids
        pieces.append(_Piece(text, ids))
        return pieces

    def _lead(self, number: int) -> int:
        """Tokens of the statement before its code."""
        before, _, _ = self.needle_texts[number].partition(self.statements[number].code)
        return len(self.tokenizer.encode(before.rstrip(" ")))

    def _encode(self, text: str) -> array[int]:
        return array("I", self.tokenizer.encode(text))

    def _most(self, number: int, order: list[int]) -> int:
        """The last token at which a statement may begin, so that what follows it fits."""
        behind = order[order.index(number) :]
        stated = sum(len(self.needle_ids[i]) + _TAIL // 4 for i in behind)
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

    def _closed(self, pieces: list[_Piece]) -> Haystack:
        """Cut the end so that the whole has exactly the size; pad the title by single words."""
        target = self.room
        for _ in range(4):
            made = self._fitted(pieces, target)
            if made is None:
                break
            whole, last = made
            text = "".join(p.text for p in whole)
            ids = self.tokenizer.encode(text)
            if len(ids) == self.room:
                return self._haystack(text, ids, whole, last, exact=True)
            target += self.room - len(ids)
        return self._by_ids(pieces)

    def _fitted(self, pieces: list[_Piece], target: int) -> tuple[list[_Piece], int] | None:
        """(all pieces with title and question, characters of filler in the last) or None."""
        *rest, last = self._with_tail(pieces)
        first, *middle = rest
        known = sum(len(p.ids) for p in middle)
        opening = self._encode(self.head(Heads.SHORT) + first.text)
        budget = target - len(opening) - known

        def end(cut: int) -> array[int]:
            return self._encode(last.text[:cut] + self.after)

        ends = [m.start() for m in _WORD_END.finditer(last.text)]
        low, high = 0, len(ends)  # the last word end that counts to the budget or less
        while low < high:
            middle_at = (low + high) // 2
            low, high = (
                (middle_at + 1, high) if len(end(ends[middle_at])) <= budget else (low, middle_at)
            )
        for at in range(low - 1, max(-1, low - 12), -1):
            closing = end(ends[at])
            missing = budget - len(closing)
            words = Heads.SHORT + missing
            for _ in range(3):
                title = self._encode(self.head(words) + first.text)
                short = budget + len(opening) - len(closing) - len(title)
                if short == 0:
                    start = _Piece(self.head(words) + first.text, title)
                    finish = _Piece(last.text[: ends[at]] + self.after, closing)
                    return [start, *middle, finish], ends[at]
                words += short
                if words < 1:
                    break
        return None

    def _with_tail(self, pieces: list[_Piece]) -> list[_Piece]:
        """The last stretches of filler as one piece that the cut lies inside of."""
        pieces = list(pieces)
        around = len(self.tokenizer.encode(self.head(Heads.SHORT) + self.after))
        surplus = around + sum(len(p.ids) for p in pieces) - self.room
        while len(pieces) > 2 and len(pieces[-1].ids) < surplus + _TAIL:
            if pieces[-2].needle is not None:
                break
            b, a = pieces.pop(), pieces.pop()
            pieces.append(_Piece(a.text + b.text, a.ids + b.ids))
        return pieces

    def _by_ids(self, pieces: list[_Piece]) -> Haystack:
        """N ids whose text does not encode back to as many: for engines that take ids."""
        start, end = self._encode(self.head(Heads.SHORT)), self._encode(self.after)
        surplus = len(start) + len(end) + sum(len(p.ids) for p in pieces) - self.room
        *rest, last = self._with_tail(pieces)
        kept = last.ids[: len(last.ids) - surplus]
        whole = [
            _Piece("", start),
            *rest,
            _Piece(self.tokenizer.decode(kept), kept),
            _Piece("", end),
        ]
        ids = [i for p in whole for i in p.ids]
        return self._haystack(self.tokenizer.decode(ids), ids, whole, len(kept), exact=False)

    def _haystack(
        self, text: str, ids: list[int], whole: list[_Piece], last: int, *, exact: bool
    ) -> Haystack:
        filler = [p.text for p in whole[1:-1] if p.needle is None]
        opening = whole[0].text[whole[0].text.find("\n\n", len(self.before)) + 2 :]
        self.filler_text = "".join([opening, *filler, whole[-1].text[:last] if exact else ""])
        used = len(self.filler_text)
        all_ids = (*self.tokenizer.prefix, *ids, *self.tokenizer.suffix)
        assert len(all_ids) == self.tokens
        return Haystack(
            text, all_ids, exact, self._positions(ids, whole), used, used > self.loop.chars
        )

    def _positions(self, ids: list[int], whole: list[_Piece]) -> tuple[Placed, ...]:
        found: list[Placed] = []
        at = 0
        for piece in whole:
            if piece.needle is not None:
                statement = self.statements[piece.needle]
                begin = self._seek(ids, statement.code, at + self._lead(piece.needle))
                place = begin + len(self.tokenizer.prefix)
                found.append(
                    Placed(statement.code, statement.depth, place, round(place / self.tokens, 6))
                )
            at += len(piece.ids)
        return tuple(found)

    def _seek(self, ids: list[int], code: str, near: int) -> int:
        """The first token of the code: the last place from which the text still holds it."""
        width = 4 * len(code)
        for reach in (8, 64, 1024, len(ids)):
            low, high = max(0, near - reach), min(len(ids), near + reach)
            if code not in self.tokenizer.decode(ids[low : high + width]):
                continue
            while low < high:
                middle = (low + high + 1) // 2
                held = code in self.tokenizer.decode(ids[middle : high + width])
                low, high = (middle, high) if held else (low, middle - 1)
            return low
        raise CellError(
            f"This tokenizer does not keep the code {code} as it is written.",
            "Retrieval cannot be judged with it.",
        )
