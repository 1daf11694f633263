"""Cutting a text so that the whole prompt has exactly N tokens, proven by encoding it.

A cut in the middle of a word does not survive decoding and encoding again. So the text is
cut at the last word that fits, and the missing tokens (mostly none, one or two) are made up
by further words of the head, each a single token. The count is then taken from encoding the
whole text, and nothing is called exact that was not counted.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qualify.errors import CellError
from qualify.prompts.corpus import Segment
from qualify.prompts.frames import Frame
from qualify.prompts.tokens import Tokenizer

_WORD_END = re.compile(r"(?<=\S)(?=\s)")
_LEAST_BODY = 4


@dataclass(frozen=True)
class Fitted:
    """A prompt of exactly the asked size. exact: encode(text) == ids was proven.

    ids include the tokenizer's prefix and suffix (BOS), text does not. chars: how much of
    the source it used. nearest: where not exact, the closest size that a text reached.
    """

    text: str
    ids: tuple[int, ...]
    exact: bool
    chars: int
    nearest: int | None = None


def fit(
    frame: Frame,
    head: Callable[[int], str],
    head_words: int,
    segments: Iterator[Segment],
    tokens: int,
    tokenizer: Tokenizer,
    *,
    most_chars: float = math.inf,
) -> Fitted | None:
    """A prompt of `tokens` tokens: frame(head) around as much of `segments` as fits.

    None, before the costly part, where that would use more than `most_chars` of the source.
    `head(k)` gives a head of k words. Raises CellError when the frame alone is too long,
    with the smallest shape that is possible.
    """
    room = tokens - len(tokenizer.prefix) - len(tokenizer.suffix)
    before, after = frame(head(head_words), True)
    overhead = len(tokenizer.encode(before)) + len(tokenizer.encode(after))
    if room - overhead < _LEAST_BODY:
        return _head_only(frame, head, room, tokens, tokenizer)
    body: list[Segment] = []
    have = 0
    while have < room - overhead + 16:
        body.append(next(segments))
        have += len(body[-1].ids)
    if sum(len(s.text) for s in body[:-1]) > most_chars:
        return None
    body = _merged_end(body, have - (room - overhead))
    return _Cutter(frame, head, head_words, body, room, tokenizer).fitted()


def _merged_end(body: list[Segment], surplus: int) -> list[Segment]:
    """The same stretches with the last ones made one, so that any near cut lies inside it."""
    body = list(body)
    while len(body) > 1 and len(body[-1].ids) < surplus + 16:
        b, a = body.pop(), body.pop()
        body.append(Segment(a.text + b.text, a.ids + b.ids, a.gap + b.gap))
    return body


def _head_only(
    frame: Frame, head: Callable[[int], str], room: int, tokens: int, tokenizer: Tokenizer
) -> Fitted:
    def text_of(words: int) -> str:
        before, after = frame(head(words), False)
        return before + after

    least = len(tokenizer.encode(text_of(1)))
    words = 1 + room - least
    for _ in range(4):
        if words < 1:
            break
        text = text_of(words)
        ids = tokenizer.encode(text)
        if len(ids) == room:
            return _proven(text, ids, tokenizer, 0)
        words += room - len(ids)
    plain = frame("x", False) == ("x", "")
    if plain:  # spelled heads have words of several tokens, but any length of text will do
        long = text_of(room + 2)
        for cut in range(1, len(long)):
            ids = tokenizer.encode(long[:cut])
            if len(ids) == room:
                return _proven(long[:cut], ids, tokenizer, 0)
    if plain:
        least = len(tokenizer.encode(text_of(1)[:1]))
    smallest = least + len(tokenizer.prefix) + len(tokenizer.suffix)
    reason = "its first tokens and one letter" if plain else "the chat template and one word"
    raise CellError(
        f"A prompt of {tokens} tokens cannot be built: {reason} alone take {smallest}.",
        f"Ask for at least {max(smallest, tokens + 1)} tokens"
        + ("." if plain else ", or set `template: false`."),
    )


def _proven(text: str, ids: list[int], tokenizer: Tokenizer, chars: int) -> Fitted:
    return Fitted(text, (*tokenizer.prefix, *ids, *tokenizer.suffix), True, chars)


class _Cutter:
    """The search for one cut. Counts are local (first and last stretch), the proof is whole."""

    def __init__(
        self,
        frame: Frame,
        head: Callable[[int], str],
        head_words: int,
        body: list[Segment],
        room: int,
        tokenizer: Tokenizer,
    ) -> None:
        self.frame, self.head, self.head_words = frame, head, head_words
        self.body, self.room, self.tokenizer = body, room, tokenizer
        self.last = body[-1]
        self.middle = sum(len(s.ids) for s in body[1:-1])
        self.nearest = 0  # the count closest to the room that any text tried had

    def fitted(self) -> Fitted:
        target = self.room
        for _ in range(3):
            found = self._search(target)
            if found is None:
                break
            words, cut = found
            text = self._text(words, cut)
            ids = self.tokenizer.encode(text)
            if len(ids) == self.room:
                return _proven(text, ids, self.tokenizer, self._chars(cut))
            # The stretches together count otherwise than apart; aim beside it by as much.
            target += self.room - len(ids)
        return self._by_ids()

    def _text(self, words: int, cut: int) -> str:
        before, after = self.frame(self.head(words), True)
        whole = "".join(s.text for s in self.body[:-1])
        return before + whole + self.last.text[:cut] + after

    def _chars(self, cut: int) -> int:
        full = sum(len(s.text) - s.gap for s in self.body[:-1])
        return full + max(0, cut - self.last.gap)

    def _count(self, words: int, cut: int) -> int:
        before, after = self.frame(self.head(words), True)
        end = self.last.text[:cut] + after
        if len(self.body) == 1:
            return len(self.tokenizer.encode(before + end))
        ends = self.tokenizer.encode_many([before + self.body[0].text, end])
        return len(ends[0]) + self.middle + len(ends[1])

    def _search(self, target: int) -> tuple[int, int] | None:
        """(words of the head, cut in the last segment) that count to `target`, or None."""
        words = self.head_words
        for cut in self._cuts(target):
            missing = target - self._count(words, cut)
            if abs(missing) < abs(self.nearest - self.room):
                self.nearest = self.room - missing
            if missing == 0:
                return words, cut
            if not 0 < missing <= 12:
                continue
            more = words + missing
            for _ in range(3):
                short = target - self._count(more, cut)
                if short == 0:
                    return more, cut
                more += short
                if more < words:
                    break
        return None

    def _cuts(self, target: int) -> Iterator[int]:
        """Places to try, best first: word ends at or below the target, then any character."""
        text, words = self.last.text, self.head_words
        ends = [m.start() for m in _WORD_END.finditer(text)]
        guess = self._guess(target)
        at = bisect_right(ends, guess) - 1
        while 0 <= at + 1 < len(ends) and self._count(words, ends[at + 1]) <= target:
            at += 1
        tried = 0
        while at >= 0 and tried < 12 and guess - ends[at] < 400:
            yield ends[at]
            at -= 1
            tried += 1
        for distance in range(0, 60):
            for cut in {guess - distance, guess + distance}:
                if 0 < cut <= len(text):
                    yield cut

    def _guess(self, target: int) -> int:
        """About where in the last segment the target is reached."""
        text, words = self.last.text, self.head_words
        rest = target - self._count(words, 0)
        if rest >= len(self.last.ids):
            return len(text)
        guess = min(len(text), len(self.tokenizer.decode(self.last.ids[: max(rest, 0)])))
        if abs(self._count(words, guess) - target) <= 8:
            return guess
        low, high = 0, len(text)  # decoding does not give lengths back: halve instead
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._count(words, middle) <= target else (low, middle)
        return low

    def _by_ids(self) -> Fitted:
        """Exactly N ids whose text does not encode back to them: for engines that take ids."""
        before, after = self.frame(self.head(self.head_words), True)
        start, end = self.tokenizer.encode_many([before, after])
        body = [i for s in self.body for i in s.ids]
        size = self.room - len(start) - len(end)
        for skip in range(4):  # a slice that does not end inside a character, if there is one
            chosen = body[skip : skip + size]
            if len(chosen) == size and not self.tokenizer.decode(chosen[-8:]).endswith("\ufffd"):
                break
        else:
            chosen = body[:size]
        ids = [*start, *chosen, *end]
        text = self.tokenizer.decode(ids)
        all_ids = (*self.tokenizer.prefix, *ids, *self.tokenizer.suffix)
        nearest = self.nearest + len(all_ids) - len(ids)
        cut = self._guess(self.room)
        return Fitted(text, all_ids, False, self._chars(cut), nearest)
