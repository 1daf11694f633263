"""Parts of a campaign as it was read, whatever stands there: nothing here refuses anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qualify.campaign.document import Document


def side_names(document: Document) -> list[str]:
    """Modes and variants, in order, as far as they could be read."""
    modes = [m for m in listed(document.value.get("modes")) if isinstance(m, str)]
    return modes + list(mapped(document.value.get("variants")))


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def mapped(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def numbers(value: Any) -> Iterator[tuple[tuple[int, ...], int]]:
    """(sub-path, number) of a whole number or of each one in a list."""
    if (single := whole(value)) is not None:
        yield (), single
    for index, item in enumerate(listed(value)):
        if (number := whole(item)) is not None:
            yield (index,), number
