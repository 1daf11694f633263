"""Does the file have the shape of a campaign? pydantic's answer, told with lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from qualify.campaign.document import Document, holds
from qualify.campaign.expected import expected_at, found_in_words, in_words, models_at
from qualify.campaign.faults import Path, did_you_mean
from qualify.campaign.schema import Campaign


@dataclass(frozen=True)
class _Error:
    path: Path
    kind: str
    key: str  # the missing or unknown key
    limit: str  # "above 0" and the like

    @property
    def is_type(self) -> bool:
        return self.kind.endswith("_type") or self.kind == "literal_error"


def validate(document: Document) -> Campaign | None:
    """The campaign, or None with the faults noted in `document`."""
    try:
        return Campaign.model_validate(document.value)
    except ValidationError as error:
        for found in _essential(_Errors(document).of(error)):
            _tell(found, document)
        return None


class _Errors:
    def __init__(self, document: Document) -> None:
        self.document = document

    def of(self, error: ValidationError) -> list[_Error]:
        return [
            self._one(tuple(e["loc"]), e["type"], e.get("ctx") or {})
            for e in error.errors(include_url=False, include_input=False)
        ]

    def _one(self, loc: tuple[int | str, ...], kind: str, ctx: dict[str, Any]) -> _Error:
        path: Path = ()
        here: Any = self.document.value
        for step in loc:
            # A step that does not exist in the file is the name of a union's member.
            if holds(here, step):
                here = here[step]
                path = (*path, step)
        key = str(loc[-1]) if kind in ("missing", "extra_forbidden") else ""
        if kind == "extra_forbidden":
            path = path[:-1]
        return _Error(path, kind, key, _limit(kind, ctx))


def _limit(kind: str, ctx: dict[str, Any]) -> str:
    words = {
        "greater_than": ("above", "gt"),
        "greater_than_equal": ("at least", "ge"),
        "less_than": ("below", "lt"),
        "less_than_equal": ("at most", "le"),
        "too_short": ("of at least", "min_length"),
        "too_long": ("of at most", "max_length"),
    }
    if kind not in words:
        return ""
    word, name = words[kind]
    number = _plain(ctx.get(name))
    if kind.startswith("too_"):
        return f"{word} {number} {'entry' if number == '1' else 'entries'}"
    return f"{word} {number}"


def _plain(number: Any) -> str:
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)


def _essential(errors: list[_Error]) -> Iterable[_Error]:
    """One error a place: a union reports each of its members, and only one was meant."""
    for error in errors:
        if error.is_type and any(
            e.path[: len(error.path)] == error.path and (e.path != error.path or not e.is_type)
            for e in errors
        ):
            continue
        yield error  # the members that are left tell the same fault, which is kept once


def _tell(error: _Error, document: Document) -> None:
    name = dotted(error.path)
    annotation, _ = expected_at(Campaign, error.path)
    if error.kind == "missing":
        owner = f"`{name}`" if name else "the campaign"
        wanted, field = expected_at(Campaign, (*error.path, error.key))
        why = f" ({field.description})" if field and field.description else ""
        document.fault(
            error.path,
            f"{owner} lacks the key `{error.key}`",
            f"Add `{error.key}:` with {in_words(wanted)}{why}",
        )
        return
    if error.kind == "extra_forbidden":
        known = [k for m in models_at(annotation) for k in m.model_fields]
        owner = f"in `{name}`" if name else "in a campaign"
        document.fault(
            (*error.path, error.key),
            f"`{error.key}` is not a key {owner}",
            did_you_mean(error.key, known),
        )
        return
    value = document.get(error.path)
    place = document.places.get(error.path)
    found = found_in_words(value, place.text if place else None)
    wanted = in_words(annotation)
    if error.kind in ("too_short", "too_long") and isinstance(value, list):
        held = f"holds {len(value)}" if value else "is an empty list"
        document.fault(error.path, f"`{name}` {held}", f"Write a list {error.limit}.")
        return
    if error.limit:
        document.fault(
            error.path, f"`{name}` is {found}, not {error.limit}", f"Write {wanted} {error.limit}."
        )
        return
    remedy = f"Write {wanted}."
    if isinstance(value, int | float | bool) and "text" in wanted and place and place.text:
        remedy = f'Quote it: "{place.text}".'
    elif isinstance(value, str) and "`" in wanted:
        options = [w.strip("`") for w in wanted.split(" or ") if w.startswith("`")]
        remedy = did_you_mean(value, options)
    elif isinstance(value, str) and "number" in wanted and _digits(value):
        remedy = f"Write {wanted} in plain digits, without quotes or a unit."
    document.fault(error.path, f"`{name}` is {found} where {wanted} belongs", remedy)


def _digits(text: str) -> bool:
    return any(c.isdigit() for c in text)


def dotted(path: Path) -> str:
    """("workloads", 0, "name") -> "workloads[0].name"."""
    shown = ""
    for step in path:
        shown += f"[{step}]" if isinstance(step, int) else f".{step}" if shown else step
    return shown
