"""Where a request may go on: the farthest position that cached rows and a snapshot both reach.

A position q needs the KV rows of all positions before it, and a snapshot that serves q. A drafter
that follows has a row q - 1 that was written from the token at q: where the request has another
token there, the row is written again, which needs what the snapshot kept for the drafter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specdec.radix import Found, Node
from specdec.request import ResumeSource
from specdec.snapshots import Snapshot


@dataclass(frozen=True)
class Rules:
    """``page_size`` in tokens. ``follows``: a drafter's rows are cached beside the target's, and
    each depends on the token after it. ``exact``: prefill and decode rows are bitwise alike; if
    not, only the beginning of a snapshot's block is what a cold prefill would have there."""

    page_size: int
    follows: bool
    exact: bool


@dataclass(frozen=True)
class Resume:
    """How a sequence begins. Position 0 is a cold start.

    It reads the pages of ``shared``; the first ``rows`` rows of ``source`` are copied into its next
    page, which is its own. ``rewrite``: the drafter writes its row ``position - 1`` again.
    ``matched``: leading tokens that the cache knows, whether or not it can resume there.
    """

    position: int = 0
    matched: int = 0
    snapshot: Snapshot | None = None
    shared: tuple[Node, ...] = ()
    source: Node | None = None
    rows: int = 0
    rewrite: bool = False

    @property
    def came_from(self) -> ResumeSource:
        """``empty``, ``live`` (the end of an earlier request) or ``snapshot``."""
        if self.snapshot is None:
            return "empty"
        return "live" if self.snapshot.live else "snapshot"


def choose(found: Found, limit: int, rules: Rules) -> Resume:
    """The farthest position up to ``limit``; at equal positions the end of a request."""
    best = max(_candidates(found, limit, rules), key=lambda c: c[:2], default=None)
    if best is None:
        return Resume(matched=found.matched)
    position, _, snapshot, partial, agree = best
    whole = len(found.nodes)
    shared = found.nodes[: min(position // rules.page_size, whole)]
    rows = position - len(shared) * rules.page_size
    source = None
    if rows:
        source = found.nodes[len(shared)] if len(shared) < whole else partial
    return Resume(
        position, found.matched, snapshot, shared, source, rows,
        rewrite=rules.follows and position >= agree,
    )  # fmt: skip


_Candidate = tuple[int, bool, Snapshot, Node | None, int]


def _candidates(found: Found, limit: int, rules: Rules) -> Iterator[_Candidate]:
    at = len(found.nodes) * rules.page_size
    for partial in found.partials:
        for snapshot in partial.node.snapshots:
            upper = min(limit, at + partial.common)
            position = _reach(snapshot, upper, partial.agree, rules)
            if position:
                yield position, snapshot.live, snapshot, partial.node, partial.agree
    for node in reversed(found.nodes):
        # The token after a whole page counts in its match where a drafter needs it.
        reached = [(_reach(snap, min(limit, at), at + 1, rules), snap) for snap in node.snapshots]
        if any(position for position, _ in reached):
            yield from ((p, snap.live, snap, None, at + 1) for p, snap in reached if p)
            return


def _reach(snapshot: Snapshot, upper: int, agree: int, rules: Rules) -> int:
    """The farthest position that a snapshot serves; 0 if none. ``agree``: so many leading tokens
    are those of the cached path."""
    if not rules.exact:
        position = snapshot.start
        served = position <= upper and (not rules.follows or position < agree)
        return position if served else 0
    position = min(snapshot.stop, upper)
    rewritable = position == snapshot.stop and snapshot.kept is not None
    if rules.follows and position >= agree and not rewritable:
        position -= 1
    return position if position >= snapshot.start else 0
