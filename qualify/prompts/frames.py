"""What stands around the text of a prompt: nothing, a chat template, or a copy task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qualify.errors import UsageError
from qualify.prompts.template import Message, TemplateRefusal
from qualify.prompts.tokens import Tokenizer

# frame(head, body?) -> (text before the body, text after it). With body False the prompt is
# too short for one: the head alone is the content.
Frame = Callable[[str, bool], tuple[str, str]]

_MARK = "\u241fBODY\u241f"
_SEPARATOR = "\n\n"


def plain_frame(head: str, body: bool) -> tuple[str, str]:
    """A title, an empty line, the text."""
    return (head + _SEPARATOR if body else head), ""


def copy_frame(inner: Frame, opening: str) -> Frame:
    """A document, then the same document again as far as `opening`, its first part.

    The best continuation is the rest of the document, word for word: a workload on which
    drafts taken from the prompt itself are accepted.
    """

    def frame(head: str, body: bool) -> tuple[str, str]:
        before, after = inner(head, body)
        if not body:
            return before, after
        again = f"{_SEPARATOR}--- End of the document. ---{_SEPARATOR}"
        again += f"The same document repeated, word for word:{_SEPARATOR}"
        return f"{before}The document:{_SEPARATOR}", f"{again}{opening}{after}"

    return frame


def template_frame(
    tokenizer: Tokenizer, thinking: bool | None, messages: Sequence[Message] = (), elastic: int = -1
) -> Frame:
    """The tokenizer's chat template around one user message, or around a conversation.

    The head goes into the system message, the earliest place that differs; a template that
    refuses system messages gets it at the start of the first user message. `elastic` is the
    index of the message whose content is the body.

    Raises UsageError where the tokenizer has no template or the template rejects the roles.
    """
    template = tokenizer.template
    if template is None:
        raise UsageError(
            f"{tokenizer.path} has no chat template.",
            "Set `template: false` on the workload, or give a tokenizer that has one.",
        )
    conversation = list(messages) or [Message("user", _MARK)]
    if messages:
        conversation[elastic] = Message(conversation[elastic].role, _MARK)

    def arranged(head: str, system: bool, body: bool) -> list[Message]:
        if not body:
            # Still a system message: without one many templates write their own, the same
            # in every prompt.
            return (
                [Message("system", head), Message("user", "?")]
                if system
                else [Message("user", head)]
            )
        rest = conversation
        if system:
            own = ""
            if rest[0].role == "system":
                own, rest = _SEPARATOR + rest[0].content, rest[1:]
            return [Message("system", head + own), *rest]
        first = rest[0]
        return [Message(first.role, head + _SEPARATOR + first.content), *rest[1:]]

    def rendered(head: str, system: bool, body: bool) -> str:
        return template.render(arranged(head, system, body), thinking=thinking)

    def works(system: bool) -> bool:
        try:
            text = rendered("head", system, True)
        except TemplateRefusal:
            return False
        return "head" in text and text.count(_MARK) == 1

    system = works(True)
    if not system and not works(False):
        raise UsageError(
            f"The chat template of {tokenizer.path} does not take this order of messages.",
            "Set `template: false`, or give conversations that alternate user and assistant.",
        )

    def frame(head: str, body: bool) -> tuple[str, str]:
        text = rendered(head, system, body)
        if not body:
            return text, ""
        before, _, after = text.partition(_MARK)
        return before, after

    return frame
