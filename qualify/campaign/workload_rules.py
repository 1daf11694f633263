"""What one workload may not say even when every key of it has the right type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qualify.campaign.document import Document
from qualify.campaign.faults import Path, did_you_mean
from qualify.campaign.parts import listed, mapped, numbers, whole

CORPORA = tuple(f"corpora/{name}" for name in ("code", "prose", "mixed", "copy", "recall"))


def check_workload(
    document: Document, path: Path, workload: dict[str, Any], sides: Sequence[str]
) -> None:
    prompts = mapped(workload.get("prompts"))
    cache, turns = workload.get("cache", "cold"), whole(prompts.get("turns", 1))
    if turns is not None and turns > 1 and cache in ("cold", "warm"):
        document.fault(
            (*path, "prompts", "turns"),
            f"{turns} turns need a prefix that is kept, and `cache` is {cache}",
            "Write `cache: session`, or leave `turns` out.",
        )
    if cache == "session" and turns == 1:
        document.fault(
            (*path, "cache"),
            "a session grows turn by turn, and there is one turn",
            "Add `turns:` above 1 under `prompts`, or write `cache: cold`.",
        )
    source = prompts.get("source")
    if isinstance(source, str) and source.startswith("corpora/") and source not in CORPORA:
        document.fault(
            (*path, "prompts", "source"),
            f"there is no bundled corpus `{source}`",
            did_you_mean(source, CORPORA),
        )
    _growth(document, path, workload, prompts, turns)
    for key in ("tokens", "concurrency"):
        parent = prompts if key == "tokens" else workload
        at = (*path, "prompts", key) if key == "tokens" else (*path, key)
        _sizes(document, at, key, parent.get(key))
    count = whole(prompts.get("count"))
    for sub, concurrency in numbers(workload.get("concurrency")):
        if count is not None and 0 < count < concurrency:
            document.fault(
                (*path, "concurrency", *sub),
                f"{concurrency} requests at once need as many prompts, and there are {count}",
                f"Write `count: {concurrency}` or more, or a lower concurrency.",
            )
    for index, name in enumerate(listed(workload.get("modes"))):
        if isinstance(name, str) and name not in sides:
            document.fault(
                (*path, "modes", index),
                f"`{name}` is no mode or variant of this campaign",
                did_you_mean(name, sides),
            )
    if workload.get("modes") == []:
        document.fault((*path, "modes"), "no mode measures this", "Name one, or leave it out.")


def _growth(
    document: Document,
    path: Path,
    workload: dict[str, Any],
    prompts: dict[str, Any],
    turns: int | None,
) -> None:
    growth = whole(prompts.get("growth"))
    budget = whole(mapped(document.value.get("sampling")).get("output_tokens"))
    output = whole(workload.get("output_tokens")) or budget
    if growth is not None and turns == 1:
        document.fault(
            (*path, "prompts", "growth"),
            "`growth` is what later turns add, and there is one turn",
            "Add `turns:` above 1, or leave `growth` out.",
        )
    grown = growth or min((n for _, n in numbers(prompts.get("tokens"))), default=None)
    if turns is not None and turns > 1 and grown is not None and output and grown <= output:
        document.fault(
            (*path, "prompts"),
            f"each turn adds {grown} tokens, and its answer alone may take {output}",
            f"Write `growth:` above {output}, or a smaller `output_tokens`.",
        )


def _sizes(document: Document, path: Path, key: str, value: Any) -> None:
    if value == []:
        document.fault(path, f"`{key}` is an empty list", "Write at least one number.")
    seen: set[int] = set()
    for sub, number in numbers(value):
        if number <= 0:
            document.fault((*path, *sub), f"`{key}` is {number}", "Write a number above 0.")
        elif number in seen:
            document.fault((*path, *sub), f"{number} stands twice in `{key}`", "Write it once.")
        seen.add(number)
