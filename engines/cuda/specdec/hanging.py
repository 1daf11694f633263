"""Where each snapshot hangs: on the cached page that holds the row before it, or on the lease of
the running sequence whose page is not the cache's yet."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from specdec.radix import Node
from specdec.snapshots import Snapshot, SnapshotStore


@dataclass
class Lease:
    """What a running sequence has of the cache: the pages it reads, in order, and snapshots whose
    page is not there yet. ``spoiled``: its state is not finite and must not enter the cache."""

    key: Hashable
    path: list[Node]
    pending: list[Snapshot] = field(default_factory=list)
    spoiled: bool = False


class Hanging:
    """At most ``most`` snapshots of at most ``most_bytes``; ``page_size`` in tokens."""

    def __init__(self, page_size: int, most: int, most_bytes: int) -> None:
        self._page_size = page_size
        self._homes: dict[Snapshot, Node | Lease] = {}
        self._store = SnapshotStore(most, most_bytes, self._unhang)

    @property
    def count(self) -> int:
        return len(self._store)

    @property
    def total_bytes(self) -> int:
        return self._store.total_bytes

    def touch(self, snapshot: Snapshot) -> None:
        """It was used."""
        self._store.touch(snapshot)

    def note(self, lease: Lease, snapshot: Snapshot) -> None:
        """Keep a snapshot, if there is room for one of its size; nobody finds it yet."""
        if self._store.add(snapshot):
            lease.pending.append(snapshot)
            self._homes[snapshot] = lease

    def settle(self, lease: Lease) -> None:
        """Hang pending snapshots onto the pages that have the row before them."""
        waiting: list[Snapshot] = []
        for snapshot in lease.pending:
            index = (snapshot.stop - 1) // self._page_size
            if index >= len(lease.path):
                waiting.append(snapshot)
            elif any(_serves_as(old, snapshot) for old in lease.path[index].snapshots):
                self.drop([snapshot])
            else:
                lease.path[index].snapshots.append(snapshot)
                self._homes[snapshot] = lease.path[index]
        lease.pending = waiting

    def moved(self, node: Node) -> None:
        """The node took over the snapshots of others."""
        for snapshot in node.snapshots:
            self._homes[snapshot] = node

    def drop(self, snapshots: list[Snapshot]) -> None:
        """Forget snapshots whose home is given up."""
        for snapshot in snapshots:
            self._store.drop(snapshot)
            del self._homes[snapshot]

    def clear(self) -> None:
        """Forget all of them."""
        for snapshot in list(self._homes):
            self._unhang(snapshot)
            self._store.drop(snapshot)

    def check_integrity(self, nodes: list[Node], leases: list[Lease]) -> None:
        """Raise AssertionError unless each hangs in one of these places and is owned once."""
        hanging = [snapshot for node in nodes for snapshot in node.snapshots]
        hanging += [snapshot for lease in leases for snapshot in lease.pending]
        self._store.check_integrity(hanging)
        assert set(hanging) == set(self._homes), "a snapshot has another home than it hangs on"

    def _unhang(self, snapshot: Snapshot) -> None:
        home = self._homes.pop(snapshot)
        (home.pending if isinstance(home, Lease) else home.snapshots).remove(snapshot)


def _serves_as(old: Snapshot, new: Snapshot) -> bool:
    """Whether ``new`` adds nothing to a snapshot of the same page."""
    same = (old.start, old.stop) == (new.start, new.stop)
    return same and old.live >= new.live and (new.kept is None or old.kept is not None)
