"""Names and quantities that have the right type and still cannot be used.

A name ends up in paths, in ids and on terminals, so it says nothing that these would read as
something else. A quantity that no run could reach is a slip of the hand, and is told before
a plan of that size fills the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from qualify.campaign.document import Document
from qualify.campaign.faults import Path
from qualify.campaign.parts import listed, mapped
from qualify.printable import printable

LONGEST = 100  # characters: a launch's log is called by them, and a file name has 255 bytes
MOST_ROUNDS = 1_000
MOST_PROMPTS = 1_000_000
_PLAIN = re.compile(r"\w[\w.-]*")


def check_names(document: Document) -> None:
    """Note names that cannot be file names, empty references and impossible quantities."""
    for path, what, given in _named(document):
        if len(given) > LONGEST:
            document.fault(
                path,
                f"the name of {what} has {len(given)} characters",
                f"Write at most {LONGEST}: folders and logs are called by it.",
            )
    _campaign(document)
    for variant in mapped(document.value.get("variants")):
        # Those that `rules` refuses for what they mean here are told once, by it.
        if (
            not _PLAIN.fullmatch(variant)
            and not (set("/#") & set(variant))
            and variant == variant.strip()
        ):
            _refuse(
                document,
                ("variants", variant),
                f"`{printable(variant)}` cannot be a variant's name",
            )
    for index, workload in enumerate(listed(document.value.get("workloads"))):
        name = mapped(workload).get("name")
        if not isinstance(name, str) or not name or set("@/# \t") & set(name):
            continue
        if not _PLAIN.fullmatch(name):
            at = ("workloads", index, "name")
            _refuse(document, at, f'"{printable(name)}" cannot be a workload\'s name')
    _references(document)
    _quantities(document)
    _evals(document)


def _named(document: Document) -> Iterator[tuple[Path, str, str]]:
    name = document.value.get("campaign")
    if isinstance(name, str):
        yield ("campaign",), "the campaign", name
    for variant in mapped(document.value.get("variants")):
        yield ("variants", variant), "a variant", variant
    for index, workload in enumerate(listed(document.value.get("workloads"))):
        name = mapped(workload).get("name")
        if isinstance(name, str):
            yield ("workloads", index, "name"), "a workload", name


def _campaign(document: Document) -> None:
    name = document.value.get("campaign")
    if not isinstance(name, str) or not name:
        return  # the shape and the rules speak of these
    if not name.strip():
        document.fault(("campaign",), "`campaign` is blank", "Write a name.")
    elif not name.isprintable():
        document.fault(
            ("campaign",),
            f"`{printable(name)}` has unprintable characters in it",
            "Write a name of one line that a terminal can show.",
        )


def _references(document: Document) -> None:
    """An empty path would mean the folder that one happens to stand in."""
    for key in ("model", "tokenizer"):
        value = document.value.get(key)
        if isinstance(value, str) and not value.strip():
            document.fault((key,), f"`{key}` is empty", "Write a path or a name, or leave it out.")


def _quantities(document: Document) -> None:
    rounds = document.value.get("rounds")
    if _above(rounds, MOST_ROUNDS):
        document.fault(
            ("rounds",), f"{rounds:,} rounds would never end", f"Write at most {MOST_ROUNDS:,}."
        )
    for index, workload in enumerate(listed(document.value.get("workloads"))):
        workload = mapped(workload)
        for key in ("prompts", "warmup"):
            count = mapped(workload.get(key)).get("count")
            if _above(count, MOST_PROMPTS):
                document.fault(
                    ("workloads", index, key, "count"),
                    f"{count:,} prompts do not fit into memory, and would never end",
                    f"Write at most {MOST_PROMPTS:,}.",
                )


MADE = "needles"


def _evals(document: Document) -> None:
    """A set of problems is asked once. Needles are made by their options: other options are
    another evaluation (a sweep beside a conversation)."""
    seen: list[tuple[str, Any]] = []
    for index, entry in enumerate(listed(document.value.get("evals"))):
        asked = {entry: None} if isinstance(entry, str) else mapped(entry)
        for name, options in asked.items():
            if any(n == name and (n != MADE or o == options) for n, o in seen):
                document.fault(
                    ("evals", index), f"evaluation `{name}` is asked for twice", "Name it once."
                )
            seen.append((name, options))


def _above(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > most


def _refuse(document: Document, path: Path, sentence: str) -> None:
    document.fault(
        path,
        sentence,
        "Use letters, digits, `-`, `_` and `.`, beginning with a letter or digit.",
    )
