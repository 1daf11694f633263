"""The event loop's end of a submission: what the engine's thread says about its requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from specdec.job import Delta

# Called once with all rids of a stream and with those that have not ended.
Discard = Callable[[Iterable[str], frozenset[str]], None]


class Stream:
    """The deltas of one submission, each with the index of its request; read once, then closed."""

    def __init__(self, rids: list[str], discard: Discard) -> None:
        self.rids = rids
        self._discard = discard
        self._index = {rid: index for index, rid in enumerate(rids)}
        self._deltas: asyncio.Queue[tuple[int, Delta]] = asyncio.Queue()
        self._unfinished = set(rids)
        self._closed = False

    def put(self, rid: str, delta: Delta) -> None:
        """Take a delta from the engine, in the event loop's thread."""
        if delta.finish is not None:
            self._unfinished.discard(rid)
        self._deltas.put_nowait((self._index[rid], delta))

    async def __aiter__(self) -> AsyncIterator[tuple[int, Delta]]:
        """Deltas in order of their steps, until every request has ended."""
        left = len(self.rids)
        while left:
            index, delta = await self._deltas.get()
            left -= delta.finish is not None
            yield index, delta

    def close(self) -> None:
        """Let go of the requests; those that have not ended are aborted. May be called twice."""
        if not self._closed:
            self._closed = True
            self._discard(self.rids, frozenset(self._unfinished))
