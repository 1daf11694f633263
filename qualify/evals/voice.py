"""How the text of a problem becomes a prompt: chat template or plain, ids or text."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from qualify.errors import UsageError
from qualify.prompts.prompt import Prompt
from qualify.prompts.template import Message
from qualify.prompts.tokens import Tokenizer

_WORDS = "\u241fWORDS\u241f"
STYLES = ("auto", "chat", "base", "server-chat")


@dataclass(frozen=True)
class Speaker:
    """See `nouns.Voice`. chat: the tokenizer's template, applied here, sent as ids. base: the
    plain text. server-chat: the text as a user's message, and the server applies its template.
    Without a tokenizer texts are sent as they are: the server's count stands alone.
    """

    style: str
    tokenizer: Tokenizer | None = None
    thinking: bool | None = None

    def around(self) -> tuple[str, str]:
        """What the chat template writes before and after a user's words; nothing for base."""
        if self.style != "chat":
            return "", ""
        assert self.tokenizer is not None
        assert self.tokenizer.template is not None
        whole = self.tokenizer.template.render(
            [Message("user", _WORDS)], generation_prompt=True, thinking=self.thinking
        )
        before, found, after = whole.partition(_WORDS)
        if not found:
            raise UsageError(
                f"The chat template of {self.tokenizer.path} changes a user's words.",
                "Write style: base.",
            )
        return before, after

    def prompt(self, text: str, *, id: str, index: int) -> Prompt:
        template_sha256 = None
        if self.style == "chat":
            assert self.tokenizer is not None
            assert self.tokenizer.template is not None
            template_sha256 = self.tokenizer.template.sha256
            text = self.tokenizer.template.render(
                [Message("user", text)], generation_prompt=True, thinking=self.thinking
            )
        ids: tuple[int, ...] = ()
        if self.tokenizer is not None and self.style != "server-chat":
            encoded = self.tokenizer.encode(text)
            # A template writes its own BOS; a plain text gets the one that a server adds.
            around = self.tokenizer if self.style == "base" else None
            ids = (*around.prefix, *encoded, *around.suffix) if around else tuple(encoded)
        data = struct.pack(f"<{len(ids)}I", *ids) if ids else text.encode("utf-8", "surrogatepass")
        return Prompt(
            id=id,
            ids=ids,
            text=text,
            text_exact=not ids,  # nothing to re-tokenise to: the text itself is the prompt
            sha256=hashlib.sha256(data).hexdigest(),
            compress_ratio=1.0,
            klass="natural",
            index=index,
            template_sha256=template_sha256,
        )


def speaker(style: str, tokenizer: Tokenizer | None, thinking: bool | None = None) -> Speaker:
    """`auto` is chat where the tokenizer has a template, else base. Raises UsageError."""
    has_template = tokenizer is not None and tokenizer.template is not None
    if style == "auto":
        style = "chat" if has_template else "base"
    if style == "chat" and not has_template:
        raise UsageError(
            "The chat style needs a tokenizer with a chat template, and there is none.",
            "Write style: base, or style: server-chat where the server applies its own template.",
        )
    return Speaker(style, tokenizer, thinking)
