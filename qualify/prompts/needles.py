"""Codes hidden at stated depths in natural text: prompts of exactly N tokens.

The text is one stretch of the source. Each statement stands between two sentences of it, as
near as one comes to the depth that was asked for; what was reached is counted in tokens and
told. The size is proven by encoding the whole text, as in `fit`.
"""

from __future__ import annotations

import re
from array import array

from qualify.errors import CellError
from qualify.prompts.corpus import Ring
from qualify.prompts.heads import Heads
from qualify.prompts.needle_draft import TAIL, Draft, Haystack, Piece, Placed, Statement
from qualify.prompts.tokens import Tokenizer

LOOKS_LIKE = re.compile(r"(?<![A-Za-z0-9-])[A-Z][A-Z0-9]-\d{4}(?![A-Za-z0-9-])")
LONG_PASSAGE = 160  # characters of a line from which a second occurrence is a repetition
REPEATED_SHARE = 0.01  # natural texts have refrains; a text pasted twice is another thing
_WORD_END = re.compile(r"(?<=\S)(?=\s)")


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
    again, first = 0, ""
    for line in filler.split("\n"):
        if len(line) >= LONG_PASSAGE and line in seen:
            again, first = again + len(line), first or line
        seen.add(line)
    if again > REPEATED_SHARE * len(filler):
        raise CellError(
            f"{again / len(filler):.0%} of the text of {loop.corpus.source} are passages that stand"
            f" in it before: {first[:60]!r} ...",
            "Remove the repetition, or write repeat: true, which is then said in the report.",
        )


def least_tokens(codes: int) -> int:
    """Tokens of running text that so many codes must have around them."""
    return TAIL + 24 * codes


class _Builder(Draft):
    """Cuts a draft to its size and proves it."""

    def built(self) -> Haystack:
        fixed = len(self.tokenizer.encode(self.head(Heads.SHORT) + self.after))
        stated = sum(map(len, self.needle_ids))
        filler = self.room - fixed - stated
        least = least_tokens(len(self.statements))
        if filler < least:
            raise CellError(
                f"A prompt of {self.tokens:,} tokens has no room for {len(self.statements)}"
                f" codes: statements, question and template take {fixed + stated}.",
                f"Ask for at least {self.tokens - filler + least:,} tokens.",
            )
        pieces = self.placed(filler)
        return self._closed(pieces)

    def _closed(self, pieces: list[Piece]) -> Haystack:
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

    def _fitted(self, pieces: list[Piece], target: int) -> tuple[list[Piece], int] | None:
        """(all pieces with title and question, characters of filler in the last) or None."""
        *rest, last = self._with_tail(pieces)
        first, *middle = rest
        known = sum(len(p.ids) for p in middle)
        opening = self.encode(self.head(Heads.SHORT) + first.text)
        budget = target - len(opening) - known

        def end(cut: int) -> array[int]:
            return self.encode(last.text[:cut] + self.after)

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
                title = self.encode(self.head(words) + first.text)
                short = budget + len(opening) - len(closing) - len(title)
                if short == 0:
                    start = Piece(self.head(words) + first.text, title)
                    finish = Piece(last.text[: ends[at]] + self.after, closing)
                    return [start, *middle, finish], ends[at]
                words += short
                if words < 1:
                    break
        return None

    def _with_tail(self, pieces: list[Piece]) -> list[Piece]:
        """The last stretches of filler as one piece that the cut lies inside of."""
        pieces = list(pieces)
        around = len(self.tokenizer.encode(self.head(Heads.SHORT) + self.after))
        surplus = around + sum(len(p.ids) for p in pieces) - self.room
        while len(pieces) > 2 and len(pieces[-1].ids) < surplus + TAIL:
            if pieces[-2].needle is not None:
                break
            b, a = pieces.pop(), pieces.pop()
            pieces.append(Piece(a.text + b.text, a.ids + b.ids))
        return pieces

    def _by_ids(self, pieces: list[Piece]) -> Haystack:
        """N ids whose text does not encode back to as many: for engines that take ids."""
        start, end = self.encode(self.head(Heads.SHORT)), self.encode(self.after)
        surplus = len(start) + len(end) + sum(len(p.ids) for p in pieces) - self.room
        *rest, last = self._with_tail(pieces)
        kept = last.ids[: len(last.ids) - surplus]
        whole = [
            Piece("", start),
            *rest,
            Piece(self.tokenizer.decode(kept), kept),
            Piece("", end),
        ]
        ids = [i for p in whole for i in p.ids]
        return self._haystack(self.tokenizer.decode(ids), ids, whole, len(kept), exact=False)

    def _haystack(
        self, text: str, ids: list[int], whole: list[Piece], last: int, *, exact: bool
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

    def _positions(self, ids: list[int], whole: list[Piece]) -> tuple[Placed, ...]:
        found: list[Placed] = []
        at = 0
        for piece in whole:
            if piece.needle is not None:
                statement = self.statements[piece.needle]
                begin = self._seek(ids, statement.code, at + self.lead(piece.needle))
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
