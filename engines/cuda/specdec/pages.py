"""Who holds which page of the KV pool, and where the next one goes.

A page belongs to one sequence or to the prefix cache; a sequence may also read pages of the cache,
which then lie before its own. Attention reads a sequence's rows in place while its pages lie in
one run, so the allocator prefers the neighbour of the last page, and starts a new sequence where
the pages it will probably need are free and not another's likely continuation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from specdec.errors import PoolExhausted


@dataclass
class Holding:
    """A sequence's pages in order, how many it is expected to need in the end, and which of them
    are its own; the others are the cache's."""

    pages: list[int]
    expected: int
    own: set[int] = field(default_factory=set)


class Pages:
    """The pool's page table. Sizes in tokens where a name says so, in pages elsewhere."""

    def __init__(self, total_tokens: int, page_size: int) -> None:
        self.page_size = page_size
        self.count = total_tokens // page_size
        self._free = [True] * self.count
        self._free_count = self.count
        self._holdings: dict[Hashable, Holding] = {}
        self._cached: set[int] = set()
        self._idle: Callable[[], int] = lambda: 0

    @property
    def total_tokens(self) -> int:
        return self.count * self.page_size

    @property
    def free_tokens(self) -> int:
        return self._free_count * self.page_size

    @property
    def evictable_tokens(self) -> int:
        """Tokens in pages that the cache keeps and no sequence reads."""
        return self._idle() * self.page_size

    @property
    def used_tokens(self) -> int:
        """Tokens in pages that sequences hold or read."""
        return self.total_tokens - self.free_tokens - self.evictable_tokens

    def watch_idle(self, idle: Callable[[], int]) -> None:
        """Where the number of cached pages that no sequence reads comes from."""
        self._idle = idle

    def missing(self, held: int, tokens: int) -> int:
        """Pages to add to ``held`` pages so that ``tokens`` positions have a row."""
        return max(0, -(-tokens // self.page_size) - held)

    def free_pages(self) -> int:
        return self._free_count

    def grow(self, owner: Hashable, pages: list[int], count: int, expected_tokens: int) -> None:
        """Append ``count`` pages to the owner's list. Raises PoolExhausted before any change."""
        if count > self._free_count:
            raise PoolExhausted(
                f"{count} pages are needed and {self._free_count} are free.",
                "Retract a sequence first.",
            )
        holding = self._holding(owner, pages, expected_tokens)
        for _ in range(count):
            page = self._next_page(owner, holding)
            self._free[page] = False
            self._free_count -= 1
            holding.own.add(page)
            pages.append(page)

    def borrow(
        self, owner: Hashable, pages: list[int], shared: list[int], expected_tokens: int
    ) -> None:
        """Begin the owner's list with pages of the cache, which stay the cache's."""
        assert not pages
        assert self._cached.issuperset(shared)
        self._holding(owner, pages, expected_tokens)
        pages.extend(shared)

    def cede(self, owner: Hashable, page: int) -> None:
        """A page of the owner's becomes the cache's; the owner goes on reading it."""
        self._holdings[owner].own.remove(page)
        self._cached.add(page)

    def claim(self) -> int:
        """A free page for the cache, where it parts no run that a sequence could use whole."""
        start, length = min(self._free_runs(set()), key=lambda run: run[1])
        page = start + length - 1
        self._free[page] = False
        self._free_count -= 1
        self._cached.add(page)
        return page

    def hand_over(self, owner: Hashable, page: int) -> None:
        """A page of the cache becomes the owner's next one."""
        holding = self._holdings[owner]
        self._cached.remove(page)
        holding.own.add(page)
        holding.pages.append(page)

    def free_cached(self, page: int) -> None:
        """The cache gives a page up."""
        self._cached.remove(page)
        self._free[page] = True
        self._free_count += 1

    def give_back(self, owner: Hashable) -> list[int]:
        """Free the owner's own pages; returns them. Nothing held is nothing freed."""
        holding = self._holdings.pop(owner, None)
        if holding is None:
            return []
        freed = sorted(holding.own)
        for page in freed:
            self._free[page] = True
        self._free_count += len(freed)
        holding.pages.clear()
        return freed

    def cached_pages(self) -> frozenset[int]:
        """The cache's pages, for its own check."""
        return frozenset(self._cached)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page is free or owned exactly once."""
        owned = [page for holding in self._holdings.values() for page in holding.own]
        owned += self._cached
        assert len(owned) == len(set(owned)), "a page has two owners"
        assert all(not self._free[page] for page in owned), "a free page has an owner"
        assert self._free_count == sum(self._free), "the free count is wrong"
        assert len(owned) + self._free_count == self.count, "a page is neither free nor owned"
        for holding in self._holdings.values():
            read = set(holding.pages)
            assert len(read) == len(holding.pages), "a sequence lists a page twice"
            assert holding.own <= read, "a sequence owns a page that it does not list"
            assert read - holding.own <= self._cached, "a sequence reads a page of nobody's"

    def _holding(self, owner: Hashable, pages: list[int], expected_tokens: int) -> Holding:
        expected = -(-expected_tokens // self.page_size)
        return self._holdings.setdefault(owner, Holding(pages, expected))

    def _next_page(self, owner: Hashable, holding: Holding) -> int:
        if holding.pages:
            neighbour = holding.pages[-1] + 1
            if neighbour < self.count and self._free[neighbour]:
                return neighbour
        wanted = max(1, holding.expected - len(holding.pages))
        reserved = self._likely_continuations(owner)
        for avoid in (reserved, set()):
            runs = self._free_runs(avoid)
            fitting = [run for run in runs if run[1] >= wanted]
            if fitting:
                return min(fitting, key=lambda run: run[1])[0]
        return max(self._free_runs(set()), key=lambda run: run[1])[0]

    def _likely_continuations(self, owner: Hashable) -> set[int]:
        likely: set[int] = set()
        for name, holding in self._holdings.items():
            if name != owner and holding.pages:
                last = holding.pages[-1]
                likely.update(range(last + 1, last + 1 + holding.expected - len(holding.pages)))
        return likely

    def _free_runs(self, avoid: set[int]) -> list[tuple[int, int]]:
        """(first page, length) of each run of free pages outside ``avoid``."""
        runs: list[tuple[int, int]] = []
        start: int | None = None
        for page in range(self.count + 1):
            usable = page < self.count and self._free[page] and page not in avoid
            if usable and start is None:
                start = page
            elif not usable and start is not None:
                runs.append((start, page - start))
                start = None
        return runs


def one_run(pages: list[int], count: int) -> bool:
    """Whether the first ``count`` pages lie side by side in order."""
    first = pages[0]
    return pages[:count] == list(range(first, first + count))
