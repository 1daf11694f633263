"""How many requests really decoded together, from their own times."""

from __future__ import annotations

from collections.abc import Iterable

from qualify.records.schema import Record


def together(records: Iterable[Record]) -> int:
    """The most streams that were between their first and their last token at one moment.

    Times are the client's, since each phase's own start; a request that waits in a queue has
    no first token yet and does not count.
    """
    edges: list[tuple[float, int]] = []
    for record in records:
        first, last = record.timing.t_first_s, record.timing.t_last_s
        if first is not None and last is not None:
            edges.append((record.t_start_s + first, 1))
            edges.append((record.t_start_s + last, -1))
    most = now = 0
    for _, step in sorted(edges):  # an end at the very time of a start comes first
        now += step
        most = max(most, now)
    return most
