"""The prefix cache: pages and recurrent states that requests leave behind for those after them.

What may be reused is what a cold run would compute, bit for bit. Every row's arithmetic depends on
its tokens and its absolute position alone (``contract.py``), so rows that came by decode or verify
serve as well as those of a prefill. Where the self-check at start found that prefill rows are not
exact, only what prefill computed enters the cache, and requests resume at block edges alone: the
cut of prefill into pieces follows absolute positions, so a resumed prefill is still a cold one.

A sequence reads whole cached pages in place; the page in which it goes on is copied, since it will
write there. The pages it fills become the cache's own as soon as their rows are final.
"""

from __future__ import annotations

from specdec.contract import CacheSize
from specdec.hanging import Hanging, Lease
from specdec.pages import Pages
from specdec.radix import Node, RadixTree
from specdec.request import Sequence
from specdec.resume import Resume, Rules, choose
from specdec.snapshots import Snapshot, restore
from specdec.state import ModelState


class PrefixCache:
    """Pages of ``pages`` and copies of the recurrent state in ``state``, found by token ids."""

    def __init__(
        self, pages: Pages, state: ModelState, rules: Rules, most: int, most_bytes: int
    ) -> None:
        self.rules = rules
        self._pages = pages
        self._state = state
        self._tree = RadixTree(rules.page_size, rules.follows)
        self._snapshots = Hanging(rules.page_size, most, most_bytes)
        self._leases: dict[Sequence, Lease] = {}
        self._evicted_tokens = 0
        pages.watch_idle(lambda: self._tree.idle)

    @property
    def size(self) -> CacheSize:
        return CacheSize(
            len(self._pages.cached_pages()),
            self._tree.idle,
            self._snapshots.count,
            self._snapshots.total_bytes,
            self._evicted_tokens,
        )

    # -- a sequence begins --------------------------------------------------------------------

    def find(self, seq: Sequence, limit: int) -> Resume:
        """Where ``seq`` could go on, at position ``limit`` at the farthest. Changes nothing."""
        found = self._tree.find(seq.cache_key, seq.all_tokens())
        return choose(found, limit, self.rules)

    def spare_pages(self, resume: Resume) -> int:
        """Pages that could be evicted for a sequence that begins so."""
        kept = {*resume.shared, resume.source} - {None}
        return self._tree.idle - sum(1 for node in kept if node and not node.holders)

    def open(self, seq: Sequence, resume: Resume, expected_tokens: int) -> None:
        """Begin the sequence's pages, and put the recurrent state into its slot."""
        assert seq.slot is not None
        self._tree.hold(resume.shared)
        self._leases[seq] = Lease(seq.cache_key, list(resume.shared))
        shared = [node.page for node in resume.shared]
        self._pages.borrow(seq, seq.pages, shared, expected_tokens)
        if resume.source is not None:
            self._split(seq, resume.source, expected_tokens)
        if resume.snapshot is not None:
            self._snapshots.touch(resume.snapshot)
            restore(self._state, seq.slot, resume.snapshot)

    def _split(self, seq: Sequence, source: Node, expected_tokens: int) -> None:
        """Give the sequence a page of its own with the rows of ``source``."""
        self._tree.hold([source])
        self.evict(1 - self._pages.free_pages())
        if source.holders == 1 and (not seq.pages or source.page == seq.pages[-1] + 1):
            # Attention reads pages in place while they lie side by side, so the sequence takes
            # the original and the cache the copy.
            page, original = self._pages.claim(), source.page
            self._copy_rows(original, page, len(source.tokens))
            source.page = page
            self._pages.hand_over(seq, original)
        else:
            self._pages.grow(seq, seq.pages, 1, expected_tokens)
            self._copy_rows(source.page, seq.pages[-1], len(source.tokens))
        self._tree.let_go([source])

    # -- a sequence goes on -------------------------------------------------------------------

    def note(self, seq: Sequence, snapshot: Snapshot) -> None:
        """Keep a snapshot; it is found when its page is the cache's."""
        self._snapshots.note(self._leases[seq], snapshot)

    def extend(self, seq: Sequence, rows: int) -> None:
        """Let others find the whole pages among the first ``rows`` rows, which are final.

        It stops at a page that somebody else brought meanwhile; ``close`` goes on behind it.
        """
        lease, size = self._leases[seq], self.rules.page_size
        tokens = seq.all_tokens()
        while (stop := (len(lease.path) + 1) * size) <= rows:
            parent = self._end(lease)
            if self._tree.whole(parent, tokens, stop - size) is not None:
                break
            self._cede(seq, lease, parent, tokens, stop - size, stop)
        self._snapshots.settle(lease)

    def close(self, seq: Sequence, rows: int, live: Snapshot | None) -> None:
        """The sequence ends: the first ``rows`` rows stay, and the state behind them."""
        if self._leases[seq].spoiled:
            self.abandon(seq)
            return
        lease, size = self._leases.pop(seq), self.rules.page_size
        tokens = seq.all_tokens()
        while (stop := (len(lease.path) + 1) * size) <= rows:
            parent = self._end(lease)
            child = self._tree.whole(parent, tokens, stop - size)
            if child is None:
                self._cede(seq, lease, parent, tokens, stop - size, stop)
            else:
                self._read_too(lease, child)
        self._tail(seq, lease, tokens, rows)
        if live is not None:
            self._snapshots.note(lease, live)
        self._snapshots.settle(lease)
        self._snapshots.drop(lease.pending)
        self._tree.let_go(lease.path)

    def is_spoiled(self, seq: Sequence) -> bool:
        """Whether what it computed may not be reused."""
        return self._leases[seq].spoiled

    def spoil(self, seq: Sequence) -> None:
        """Whatever the sequence computed from here on is not to be reused."""
        self._leases[seq].spoiled = True

    def abandon(self, seq: Sequence) -> None:
        """The sequence ends and leaves nothing behind that is not there already."""
        lease = self._leases.pop(seq, None)
        if lease is not None:
            self._snapshots.drop(lease.pending)
            self._tree.let_go(lease.path)

    def _cede(
        self, seq: Sequence, lease: Lease, parent: Node, tokens: tuple[int, ...], at: int, stop: int
    ) -> None:
        page = seq.pages[len(lease.path)]
        node = self._tree.add(parent, tokens[at:stop], tokens[stop], page)
        self._pages.cede(seq, page)
        for spare in self._tree.absorb(node):
            self._free(spare)
        self._snapshots.moved(node)
        lease.path.append(node)

    def _tail(self, seq: Sequence, lease: Lease, tokens: tuple[int, ...], rows: int) -> None:
        """The page of the rows after the last whole one: one that has them already, or its own."""
        at = len(lease.path) * self.rules.page_size
        if rows <= at:
            return
        parent = self._end(lease)
        for child in parent.children.get(tokens[at], ()):
            if child.tokens[: rows - at] == tokens[at:rows]:
                self._read_too(lease, child)
                return
        self._cede(seq, lease, parent, tokens, at, rows)

    def _read_too(self, lease: Lease, node: Node) -> None:
        self._tree.hold([node])
        lease.path.append(node)

    def _end(self, lease: Lease) -> Node:
        return lease.path[-1] if lease.path else self._tree.root(lease.key)

    # -- eviction -----------------------------------------------------------------------------

    def evict(self, pages: int) -> None:
        """Free up to ``pages`` pages that nobody reads, least recently used first."""
        for _ in range(pages):
            self._evicted_tokens += self._forget_oldest()

    def clear(self) -> None:
        """Forget all that no running sequence reads, and every snapshot."""
        self._snapshots.clear()
        while self._tree.idle:
            self._forget_oldest()

    def _forget_oldest(self) -> int:
        """Free the least recently used page that nobody reads; returns its rows, 0 if none."""
        node = self._tree.evict()
        if node is None:
            return 0
        self._snapshots.drop(node.snapshots)
        self._free(node.page)
        return len(node.tokens)

    def _free(self, page: int) -> None:
        size = self.rules.page_size
        self._state.clear_rows(page * size, (page + 1) * size)
        self._pages.free_cached(page)

    def _copy_rows(self, source: int, target: int, rows: int) -> None:
        size = self.rules.page_size
        self._state.copy_rows(source * size, target * size, rows)

    # -- checking -----------------------------------------------------------------------------

    def check_integrity(self) -> None:
        """Raise AssertionError unless every cached page and snapshot is owned once, holders are
        the running sequences, and all counts add up."""
        nodes = self._tree.nodes()
        self._tree.check_integrity()
        pages = [node.page for node in nodes]
        assert len(pages) == len(set(pages)), "a page is in the tree twice"
        assert set(pages) == self._pages.cached_pages(), "the tree and the pool disagree"
        held: dict[Node, int] = {}
        for seq, lease in self._leases.items():
            assert [node.page for node in lease.path] == seq.pages[: len(lease.path)], (
                "a sequence reads other pages than it holds"
            )
            for node in lease.path:
                held[node] = held.get(node, 0) + 1
        assert all(node.holders == held.get(node, 0) for node in nodes), "holders do not add up"
        self._snapshots.check_integrity(nodes, list(self._leases.values()))
