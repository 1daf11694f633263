"""Texts to cut prompts from, and their token ids, made only where they are needed."""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from qualify.errors import UsageError
from qualify.prompts.template import Message
from qualify.prompts.tokens import Tokenizer

BLOCK_CHARS = 16_384
# Between a letter and " letter" every known pre-tokenizer splits, so ids of the two sides
# put together are the ids of the whole.
_SEAM = re.compile(r"(?<=[a-z])(?= [a-z])")


@dataclass(frozen=True)
class Document:
    """One text. `messages` when it is a conversation (text then joins their contents)."""

    name: str
    text: str
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Corpus:
    """Documents in a stated order; equal `sha256` means equal names and texts.

    whole: every prompt starts at the start of a document (a user's own prompts), rather
    than at any paragraph.
    """

    source: str = field(compare=False)
    documents: tuple[Document, ...] = field(compare=False, repr=False)
    sha256: str
    whole: bool = False

    @property
    def chars(self) -> int:
        return sum(len(d.text) for d in self.documents)


def make_corpus(source: str, documents: list[Document], *, whole: bool = False) -> Corpus:
    """A corpus with its identity computed."""
    digest = hashlib.sha256(b"whole" if whole else b"text")
    for document in documents:
        for part in (document.name, document.text, *(m.role for m in document.messages)):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
    return Corpus(source, tuple(documents), digest.hexdigest(), whole)


@dataclass(frozen=True)
class Segment:
    """A stretch of text and the ids of that text alone.

    gap: characters of `text` that are a joint between two documents and not part of either.
    """

    text: str
    ids: array[int]
    gap: int = 0


class Ring:
    """A corpus as one closed loop of documents, tokenised block by block and remembered."""

    JOINT = "\n\n"

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer) -> None:
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.documents = _without_specials(corpus, tokenizer)
        self.starts: list[int] = []  # of each document, in characters along the loop
        at = 0
        for document in self.documents:
            self.starts.append(at)
            at += len(document.text)
        self.chars = at
        self._seams: dict[int, list[int]] = {}
        self._ids: dict[tuple[int, int], array[int]] = {}

    def seams(self, document: int) -> list[int]:
        """Block boundaries of a document, from 0 to its length.

        The first and the last block are short: they are what a joint between two documents
        is encoded together with.
        """
        if document not in self._seams:
            text = self.documents[document].text
            first = _SEAM.search(text, 1, 2_000)
            found = [0, first.start()] if first else [0]
            while len(text) - found[-1] > 2 * BLOCK_CHARS:
                found.append(_cut_after(text, found[-1] + BLOCK_CHARS, len(text)))
            last = [m.start() for m in _SEAM.finditer(text, max(found[-1] + 1, len(text) - 2_000))]
            self._seams[document] = [*found, *last[-1:], len(text)]
        return self._seams[document]

    def read(self, document: int, offset: int, tokens: int) -> Iterator[Segment]:
        """Segments from a place on, round and round, without end.

        `tokens` is about how many will be read: it decides how many blocks are encoded ahead.
        The last block of a document comes joined with the first of the next one.
        """
        while True:
            text = self.documents[document].text
            tail = ""
            for index, (start, end) in enumerate(pairwise(self.seams(document))):
                if end <= offset:
                    continue
                if end == len(text):
                    tail = text[max(start, offset) : end]
                elif start >= offset:
                    self._fill(document, index, tokens)
                    ids = self._ids[(document, index)]
                    tokens -= len(ids)
                    yield Segment(text[start:end], ids)
                else:
                    for piece in _pieces(text, offset, end, tokens):
                        ids = array("I", self.tokenizer.encode(piece))
                        tokens -= len(ids)
                        yield Segment(piece, ids)
            document = (document + 1) % len(self.documents)
            offset = self.seams(document)[1]
            joined = tail + self.JOINT + self.documents[document].text[:offset]
            yield Segment(joined, array("I", self.tokenizer.encode(joined)), len(self.JOINT))

    def _fill(self, document: int, index: int, tokens: int) -> None:
        if (document, index) in self._ids:
            return
        text, seams = self.documents[document].text, self.seams(document)
        ahead = max(1, min(len(seams) - 1 - index, tokens * 4 // BLOCK_CHARS + 1))
        wanted = [i for i in range(index, index + ahead) if (document, i) not in self._ids]
        found = self.tokenizer.encode_many([text[seams[i] : seams[i + 1]] for i in wanted])
        for i, ids in zip(wanted, found, strict=True):
            self._ids[(document, i)] = array("I", ids)

    def total_tokens(self) -> int:
        """Tokens of the whole corpus (tokenises what was not yet)."""
        total = 0
        for document in range(len(self.documents)):
            for index in range(len(self.seams(document)) - 1):
                self._fill(document, index, 1 << 40)
                total += len(self._ids[(document, index)])
        return total

    def place(self, position: int) -> tuple[int, int]:
        """(document, offset) of a character position along the loop."""
        position %= max(1, self.chars)
        document = bisect_right(self.starts, position) - 1
        return document, position - self.starts[document]

    def paragraph(self, document: int, offset: int) -> tuple[int, int]:
        """The next natural start at or after a place: a paragraph, else a line, else a word."""
        if offset == 0:
            return document, 0
        text = self.documents[document].text
        for pattern, reach in ((r"\n\s*\n(?=\S)", 8_000), (r"\n(?=\S)", 4_000), (r"\s(?=\S)", 400)):
            found = re.compile(pattern).search(text, max(0, offset - 1), offset + reach)
            if found:
                return document, found.end()
        return (document + 1) % len(self.documents), 0

    def word(self, document: int, offset: int) -> tuple[int, int]:
        """The next place that is not blank."""
        found = re.compile(r"\S").search(self.documents[document].text, offset)
        return (document, found.start()) if found else ((document + 1) % len(self.documents), 0)


def _pieces(text: str, start: int, end: int, tokens: int) -> Iterator[str]:
    """text[start:end] in pieces that end at a seam, the first about as long as is needed."""
    while start < end:
        stop = _cut_after(text, min(end, start + max(400, tokens * 6)), end)
        yield text[start:stop]
        start = stop


def _cut_after(text: str, at: int, end: int) -> int:
    """The next seam; without one near, a line's start, then anything: the final count decides."""
    seam = _SEAM.search(text, at, min(end, at + 4_000))
    if seam:
        return seam.start()
    return text.find("\n", at, at + 1_000) + 1 or min(end, at + 1_000)


@lru_cache(maxsize=4)
def ring(corpus: Corpus, tokenizer: Tokenizer) -> Ring:
    """The loop of a corpus under a tokenizer; token ids are kept for the next prompt set."""
    return Ring(corpus, tokenizer)


def _without_specials(corpus: Corpus, tokenizer: Tokenizer) -> tuple[Document, ...]:
    """A control word written in a text ends a document there; it never enters a prompt."""
    found: list[Document] = []
    words = sorted(tokenizer.special, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, words))) if words else None
    for document in corpus.documents:
        parts = pattern.split(document.text) if pattern else [document.text]
        if len(parts) == 1:
            found.append(document)
        elif corpus.whole and pattern:
            word = pattern.search(document.text)
            raise UsageError(
                f"{corpus.source}, {document.name}: the control token {word and word[0]!r} "
                "stands in the text.",
                "Give messages and set `template: true`, so that the template writes such tokens.",
            )
        else:
            found.extend(
                Document(f"{document.name}#{i}", part)
                for i, part in enumerate(parts)
                if part.strip()
            )
    return tuple(d for d in found if d.text)
