"""Text from tokens as they come: never a broken character, never past a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from specdec.tokenizer import Tokenizer


class Detokenizer:
    """Turns the tokens of one request into text, step by step.

    Bytes of an unfinished character are held until the character is whole, and text that could
    be the start of a stop string is held until it is decided. The pieces joined are what
    `Tokenizer.decode` gives for all tokens at once, cut at the stop string where one was met.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        skip_special_tokens: bool = True,
        keep_stop: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._skip_special = skip_special_tokens
        self._keep_stop = keep_stop
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.matched: str | None = None

    def push(self, token_id: int) -> str:
        """Take one token; return the text that is certain now. Sets `matched` on a stop string."""
        if self.matched is not None or (
            self._skip_special and self._tokenizer.is_special(token_id)
        ):
            return ""
        return self._settle(self._decoder.decode(self._tokenizer.token_bytes(token_id)))

    def finish(self) -> str:
        """Return what is still held; an unfinished character becomes U+FFFD."""
        if self.matched is not None:
            return ""
        rest = self._settle(self._decoder.decode(b"", final=True))
        if self.matched is None:
            rest, self._held = rest + self._held, ""
        return rest

    def _settle(self, new: str) -> str:
        if not self._stop:
            return new
        text = self._held + new
        hits = [(at, word) for word in self._stop if (at := text.find(word)) >= 0]
        if hits:
            at, self.matched = min(hits, key=lambda hit: (hit[0], -len(hit[1])))
            self._held = ""
            return text[: at + len(self.matched)] if self._keep_stop else text[:at]
        keep = max(_overlap(text, word) for word in self._stop)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]


def _overlap(text: str, word: str) -> int:
    """Length of the longest proper prefix of `word` that ends `text`."""
    for size in range(min(len(text), len(word) - 1), 0, -1):
        if text.endswith(word[:size]):
            return size
    return 0
