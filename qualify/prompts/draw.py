"""Numbers drawn from names: the same in every process, on every machine, in any order.

Generator "sha256-v1": the first eight bytes of SHA-256 over the parts, each preceded by its
length, read as a big-endian integer. There is no state to inherit, so two workers can never
send the same prompts by accident, and nothing depends on the mode or the launch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

GENERATOR = "sha256-v1"


def draw(*parts: str | int) -> int:
    """An integer in [0, 2**64) that depends on the parts and nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        data = str(part).encode("utf-8")
        digest.update(len(data).to_bytes(4, "big"))
        digest.update(data)
    return int.from_bytes(digest.digest()[:8], "big")


def shuffled(items: Iterable[str], *parts: str | int) -> list[str]:
    """The items in an order that depends on the parts."""
    return sorted(items, key=lambda item: (draw(*parts, item), item))


def spread(index: int) -> float:
    """The van der Corput sequence in base 2: point `index` of [0, 1).

    The first 2**k points lie exactly 2**-k apart, so slices that start there are disjoint
    whatever their number, and a point does not move when more are asked for.
    """
    value, weight = 0.0, 0.5
    while index:
        value += weight * (index & 1)
        index >>= 1
        weight /= 2
    return value
