"""Conversations as they come from outside: messages in the two common spellings."""

from __future__ import annotations

from typing import Any

from qualify.prompts.corpus import Document
from qualify.prompts.template import Message

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}


def document_from(name: str, row: dict[str, Any]) -> Document:
    """A document from {"prompt": text}, {"messages": [...]} or {"conversations": [...]}.

    Raises ValueError with what is wrong, in words that fit behind "line 7: ".
    """
    keys = [k for k in ("messages", "conversations", "prompt") if row.get(k) is not None]
    if not keys:
        have = ", ".join(map(str, row)) or "nothing"
        raise ValueError(f"no prompt, messages or conversations in it (it has {have})")
    if len(keys) > 1:
        raise ValueError(f"both {keys[0]} and {keys[1]} in it; keep one")
    value = row[keys[0]]
    if keys[0] == "prompt":
        if isinstance(value, list):
            return conversation(name, value)
        if not isinstance(value, str):
            raise ValueError(f"prompt is {_kind(value)}, not a text")
        if not value.strip():
            raise ValueError("prompt is empty")
        return Document(name, value.strip())
    if not isinstance(value, list):
        raise ValueError(f"{keys[0]} is {_kind(value)}, not a list of messages")
    return conversation(name, value)


def conversation(name: str, rows: list[Any]) -> Document:
    """A document from role/content or from/value messages; it must ask something."""
    messages = tuple(_message(i, row) for i, row in enumerate(rows))
    if not any(m.role == "user" and m.content for m in messages):
        raise ValueError("no message of a user in it")
    return Document(name, "\n\n".join(m.content for m in messages if m.content), messages)


def _message(index: int, row: Any) -> Message:
    if not isinstance(row, dict):
        raise ValueError(f"message {index} is {_kind(row)}, not an object")
    role = row.get("role", row.get("from"))
    if role not in _ROLES:
        raise ValueError(f"message {index} has the role {role!r}")
    content = row.get("content", row.get("value"))
    if isinstance(content, list):
        content = "\n".join(_part(index, part) for part in content)
    if not isinstance(content, str):
        raise ValueError(f"message {index} has {_kind(content)} as content, not a text")
    return Message(_ROLES[role], content.strip())


def _part(index: int, part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part
    if not isinstance(text, str):
        raise ValueError(f"message {index} has a part that is not text")
    return text


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value"}
    return "missing" if value is None else names.get(type(value), "a number")
