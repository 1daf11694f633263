"""What the schema expects at a path, in words: the second half of a good error."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from qualify.campaign.faults import Path


def expected_at(model: type[BaseModel], path: Path) -> tuple[Any, FieldInfo | None]:
    """The annotation at `path` inside `model`, and its field where the step is one."""
    here: Any = model
    field: FieldInfo | None = None
    for step in path:
        here, field = _descend(here, step)
    return here, field


def models_at(annotation: Any) -> list[type[BaseModel]]:
    """The models that a mapping at this annotation could be."""
    return [a for a in _members(annotation) if isinstance(a, type) and issubclass(a, BaseModel)]


def in_words(annotation: Any) -> str:
    """`int | list[int]` -> "a whole number or a list of whole numbers"."""
    return " or ".join(dict.fromkeys(_one(a) for a in _members(annotation) if a is not type(None)))


def found_in_words(value: Any, text: str | None) -> str:
    """What stands in the file, in words."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"the switch {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {text if text is not None else value}"
    if isinstance(value, str):
        shown = value if len(value) <= 40 else value[:37] + "..."
        return f'the text "{shown}"'
    return "a list" if isinstance(value, list) else "a mapping"


def _members(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [m for a in get_args(annotation) for m in _members(a)]
    return [annotation]


def _descend(annotation: Any, step: str | int) -> tuple[Any, FieldInfo | None]:
    for member in _members(annotation):
        origin, args = get_origin(member), get_args(member)
        if isinstance(step, int) and origin is list:
            return args[0], None
        if isinstance(step, str) and origin is dict:
            return args[1], None
        if isinstance(step, str) and isinstance(member, type) and issubclass(member, BaseModel):
            field = member.model_fields.get(step)
            if field is not None:
                return field.annotation, field
    return Any, None


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_PLURAL = {str: "texts", int: "whole numbers", float: "numbers"}


def _one(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation in _WORDS:
        return _WORDS[annotation]
    if origin is Literal:
        return " or ".join(f"`{a}`" for a in args)
    if origin is list:
        inner = args[0]
        if get_origin(inner) is list:
            return "a list of lists"
        return f"a list of {_PLURAL.get(inner, 'entries')}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        keys = ", ".join(list(annotation.model_fields)[:6])
        return f"a mapping with keys such as {keys}"
    if origin is dict:
        return "a mapping"
    return "a value"
