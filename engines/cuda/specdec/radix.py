"""A radix tree over token ids whose digits are KV pages.

A node is one page of the KV pool and the tokens whose rows it holds. Inner nodes are whole pages; a
leaf may be a *tail*, a page that its request did not fill. With an MTP head the last row of a page
depends on the token after the page (``mtp.py``), so there two whole pages are the same only if the
token after them is, too.

Nodes that a running sequence reads have holders and stay. All others are idle, least recently used
first; as a path is always let go from its end to its beginning, the first idle node is a leaf.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from specdec.snapshots import Snapshot


@dataclass(eq=False)
class Node:
    """One page: the tokens of its rows, and the token after them as its writer had it.

    ``children`` are grouped by their first token. ``snapshots`` are those that end in this page,
    behind one of its rows.
    """

    tokens: tuple[int, ...]
    following: int
    page: int
    parent: Node | None
    holders: int = 0
    children: dict[int, list[Node]] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)


@dataclass(frozen=True)
class Partial:
    """A page that agrees with the tokens in its first ``common`` rows, with no whole match.

    ``agree``: how many positions of all agree, the token after the page counted.
    """

    node: Node
    common: int
    agree: int


@dataclass(frozen=True)
class Found:
    """What the tree holds of some tokens: whole pages from the first on, then parts of pages."""

    nodes: tuple[Node, ...]
    partials: tuple[Partial, ...]
    matched: int  # tokens that agree, along the best continuation


class RadixTree:
    """One tree for each isolation key. ``strict``: the token after a whole page counts."""

    def __init__(self, page_size: int, strict: bool) -> None:
        self._size = page_size
        self._strict = strict
        self._roots: dict[Hashable, Node] = {}
        self._idle: dict[Node, None] = {}

    @property
    def idle(self) -> int:
        """Nodes that nobody reads."""
        return len(self._idle)

    def root(self, key: Hashable) -> Node:
        """Where paths of a key begin; a root is no page."""
        return self._roots.setdefault(key, Node((), -1, -1, None))

    def find(self, key: Hashable, tokens: Seq[int]) -> Found:
        """The longest run of whole pages for ``tokens``, and the pages that agree after it."""
        node = self._roots.get(key)
        if node is None:
            return Found((), (), 0)
        nodes: list[Node] = []
        at = 0
        while (child := self.whole(node, tokens, at)) is not None:
            nodes.append(child)
            node = child
            at += self._size
        partials = tuple(self._partials(node, tokens, at))
        matched = max((at + part.common for part in partials), default=at)
        return Found(tuple(nodes), partials, matched)

    def whole(self, node: Node, tokens: Seq[int], at: int) -> Node | None:
        """The child that is the whole page of ``tokens`` from ``at`` on."""
        stop = at + self._size
        if stop > len(tokens) or (self._strict and stop == len(tokens)):
            return None
        wanted = tuple(tokens[at:stop])
        for child in node.children.get(tokens[at], ()):
            if child.tokens == wanted and (not self._strict or child.following == tokens[stop]):
                return child
        return None

    def _partials(self, node: Node, tokens: Seq[int], at: int) -> Iterator[Partial]:
        if at >= len(tokens):
            return
        for child in node.children.get(tokens[at], ()):
            common = common_length(child.tokens, tokens, at)
            stop = at + common
            more = common == len(child.tokens) and stop < len(tokens)
            yield Partial(child, common, stop + (more and child.following == tokens[stop]))

    # -- growth -----------------------------------------------------------------------------

    def add(self, parent: Node, tokens: tuple[int, ...], following: int, page: int) -> Node:
        """A new held page below ``parent``; a tail if ``tokens`` do not fill it."""
        node = Node(tokens, following, page, parent, holders=1)
        parent.children.setdefault(tokens[0], []).append(node)
        return node

    def absorb(self, node: Node) -> list[int]:
        """Take over the siblings that are the beginning of this page; returns their pages."""
        assert node.parent is not None
        pages: list[int] = []
        for other in list(node.parent.children[node.tokens[0]]):
            rows = len(other.tokens)
            if other is node or other.holders or rows >= self._size:
                continue
            if other.tokens == node.tokens[:rows]:
                node.snapshots += other.snapshots
                other.snapshots = []
                self._remove(other)
                pages.append(other.page)
        return pages

    # -- holding ----------------------------------------------------------------------------

    def hold(self, nodes: Seq[Node]) -> None:
        """A sequence begins to read these pages."""
        for node in nodes:
            self._idle.pop(node, None)
            node.holders += 1

    def let_go(self, nodes: Seq[Node]) -> None:
        """It reads this path no more."""
        for node in reversed(nodes):
            node.holders -= 1
            if not node.holders:
                self._idle[node] = None

    def evict(self) -> Node | None:
        """Remove the least recently used page that nobody reads."""
        node = next(iter(self._idle), None)
        if node is not None:
            assert not node.children, "a page was let go before those after it"
            self._remove(node)
        return node

    def _remove(self, node: Node) -> None:
        self._idle.pop(node)
        parent = node.parent
        assert parent is not None
        siblings = parent.children[node.tokens[0]]
        siblings.remove(node)
        if not siblings:
            del parent.children[node.tokens[0]]
        if parent.parent is None and not parent.children:
            self._roots = {k: root for k, root in self._roots.items() if root is not parent}

    # -- checking ---------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """Every page of every tree, parents first."""
        found: list[Node] = []
        ahead = list(self._roots.values())
        while ahead:
            node = ahead.pop()
            for siblings in node.children.values():
                found += siblings
                ahead += siblings
        return found

    def check_integrity(self) -> None:
        """Raise AssertionError unless the tree is one and its idle nodes are in order."""
        order = {node: place for place, node in enumerate(self._idle)}
        for node in self.nodes():
            assert node.parent is not None
            assert node.tokens, "a page holds no row"
            assert node.parent.parent is None or len(node.parent.tokens) == self._size, (
                "a page follows one that is not whole"
            )
            assert (node.holders == 0) == (node in order), "a page is idle and held, or neither"
            if node in order and node.parent in order:
                assert order[node] < order[node.parent], "a page would go before those after it"
            assert node.holders == 0 or node.parent.parent is None or node.parent.holders, (
                "a page is read and the one before it is not"
            )
        assert order.keys() <= set(self.nodes()), "an idle page is in no tree"


def common_length(page: tuple[int, ...], tokens: Seq[int], at: int) -> int:
    """How many leading tokens of a page agree with ``tokens`` from ``at`` on."""
    length = min(len(page), len(tokens) - at)
    if page[:length] == tuple(tokens[at : at + length]):
        return length
    return next(i for i in range(length) if page[i] != tokens[at + i])
