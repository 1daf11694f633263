"""What a schema has against a body, as one sentence that names the field."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

_Path = tuple[int | str, ...]
_WISH = "Input should be "


def sentence(details: list[ErrorDetails], schema: type[BaseModel]) -> str:
    """The complaint that lies deepest: where a field may have several shapes, the one that the
    client came nearest to."""
    placed = [(_real_path(detail), detail) for detail in details]
    path = max((path for path, _ in placed), key=len)
    here = [detail for other, detail in placed if other == path]
    name = ".".join(str(part) for part in path)
    unknown = [detail for detail in here if detail["type"] == "extra_forbidden"]
    if unknown:
        return _unknown_field(name, path, schema)
    own = [detail for detail in here if detail["type"] == "value_error"]
    if own:
        message = str(own[0].get("ctx", {}).get("error", own[0]["msg"]))
        return f"Field '{name}': {message}" if path else message
    if any(detail["type"] == "missing" for detail in here):
        return f"Field '{name}' is missing."
    complaints = dict.fromkeys(detail["msg"] for detail in here)
    if all(text.startswith(_WISH) for text in complaints):
        return f"Field '{name}' should be {', or '.join(t[len(_WISH) :] for t in complaints)}."
    return f"Field '{name}': {', or '.join(complaints)}."


def _real_path(detail: ErrorDetails) -> _Path:
    """The location without the names that pydantic gives to the members of a union."""
    loc = detail["loc"]
    # An unknown field's own name may look like one of those, or be empty.
    own = loc[-1:] if detail["type"] == "extra_forbidden" else ()
    inner = loc[: len(loc) - len(own)]
    return (*(part for part in inner if not _is_union_member(part)), *own)


def _is_union_member(part: int | str) -> bool:
    return isinstance(part, str) and (
        "[" in part or part.startswith("constrained-") or part in ("str", "int", "float", "dict")
    )


def _unknown_field(name: str, path: _Path, schema: type[BaseModel]) -> str:
    known = sorted(_model_at(schema, path[:-1]).model_fields)
    near = difflib.get_close_matches(str(path[-1]), known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"Unknown field '{name[:200]}'.{hint} Known fields: {', '.join(known)}."


def _model_at(schema: type[BaseModel], path: _Path) -> type[BaseModel]:
    current = schema
    for part in path:
        field = current.model_fields.get(str(part))
        if field is not None:
            current = next(_models_in(field.annotation), current)
    return current


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
