"""A user's own conversation, cut or joined to an exact shape under the chat template."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace

from qualify.prompts.corpus import Ring, Segment
from qualify.prompts.fit import Fitted, fit
from qualify.prompts.frames import template_frame
from qualify.prompts.heads import Heads
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.template import Message
from qualify.prompts.tokens import Tokenizer

_SPARE = 64


def fit_conversation(
    spec: PromptSpec,
    loop: Ring,
    tokenizer: Tokenizer,
    head: Callable[[int], str],
    document: int,
) -> Fitted | None:
    """The conversation at `document`, with the following ones appended until it is long enough.

    It ends with a message of the user, whose answer is then generated; the longest message
    is cut so that the whole has exactly spec.tokens tokens.
    """
    messages, used = _gathered(spec.tokens + _SPARE, loop, tokenizer, document, spec.thinking)
    elastic = max(_cuttable(messages), key=lambda i: len(messages[i].content))
    _make_room(messages, elastic, spec, tokenizer)
    chars = sum(len(loop.documents[d].text) for d in used)
    fitted = fit(
        template_frame(tokenizer, spec.thinking, messages, elastic),
        head,
        Heads.SHORT,
        _segments(messages[elastic].content, loop, tokenizer, used[-1]),
        spec.tokens,
        tokenizer,
    )
    return None if fitted is None else replace(fitted, chars=chars)


def _segments(content: str, loop: Ring, tokenizer: Tokenizer, last: int) -> Iterator[Segment]:
    yield Segment(content, array("I", tokenizer.encode(content)))
    yield Segment("\n\n", array("I", tokenizer.encode("\n\n")))
    yield from loop.read((last + 1) % len(loop.documents), 0, 1)


def _make_room(
    messages: list[Message], elastic: int, spec: PromptSpec, tokenizer: Tokenizer
) -> None:
    """Halve the other messages, longest first, until the elastic one can make up the shape."""
    while True:
        size = _size(messages, tokenizer, spec.thinking)
        fixed = size - len(tokenizer.encode(messages[elastic].content))
        others = [i for i in _cuttable(messages) if i != elastic]
        longest = max(others, key=lambda i: len(messages[i].content), default=elastic)
        content = messages[longest].content
        if fixed + 12 < spec.tokens or longest == elastic or len(content) < 2:
            return
        messages[longest] = replace(messages[longest], content=content[: len(content) // 2].strip())


def _cuttable(messages: list[Message]) -> list[int]:
    return [i for i, m in enumerate(messages) if m.role != "system"]


def _size(messages: list[Message], tokenizer: Tokenizer, thinking: bool | None) -> int:
    frame = template_frame(tokenizer, thinking, messages, _cuttable(messages)[-1])
    around = "".join(frame("head", True))
    return tokenizer.count(around) + len(tokenizer.encode(messages[-1].content))


def _gathered(
    enough: int, loop: Ring, tokenizer: Tokenizer, document: int, thinking: bool | None
) -> tuple[list[Message], list[int]]:
    """Messages that end with one of the user, and the documents they came from."""
    messages: list[Message] = []
    used: list[int] = []
    rough = 0
    while True:
        current = loop.documents[document]
        used.append(document)
        for message in current.messages or (Message("user", current.text),):
            if message.role == "system" and messages:
                continue  # one system message a prompt: the first conversation's
            if messages and messages[-1].role == message.role:
                message = Message(message.role, f"{messages.pop().content}\n\n{message.content}")
            messages.append(message)
            rough += len(tokenizer.encode(message.content))
            ready = message.role == "user" and rough + 8 * len(messages) >= enough // 2
            if ready and _size(messages, tokenizer, thinking) >= enough:
                return messages, used
        document = (document + 1) % len(loop.documents)
