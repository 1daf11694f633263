"""The radix tree against a plain list of what was put in."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from specdec.radix import Node, RadixTree, common_length

PAGE = 4
KEYS = st.sampled_from(["a", "b"])
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=15).map(tuple)


@dataclass
class Reader:
    key: str
    path: list[Node]


def pages_of(tokens: tuple[int, ...], strict: bool) -> list[tuple[int, ...]]:
    """Everything that must agree for each whole page to be reused, the pages before it included."""
    more = 1 if strict else 0
    stops = range(PAGE, len(tokens) + 1, PAGE)
    return [tokens[: stop + more] for stop in stops if stop + more <= len(tokens)]


class TreeAgainstModel(RuleBasedStateMachine):
    """The model: for each key the set of prefixes whose page is kept, by plain tuples."""

    strict = False

    def __init__(self) -> None:
        super().__init__()
        self.tree = RadixTree(PAGE, self.strict)
        self.model: dict[str, set[tuple[int, ...]]] = {"a": set(), "b": set()}
        self.readers: list[Reader] = []
        self.keys: dict[Node, str] = {}
        self.made = 0

    def _prefix(self, node: Node) -> tuple[int, ...]:
        parts: list[tuple[int, ...]] = []
        follow = (node.following,) if self.strict else ()
        while node.parent is not None:
            parts.append(node.tokens)
            node = node.parent
        return tuple(token for part in reversed(parts) for token in part) + follow

    @rule(key=KEYS, tokens=TOKENS)
    def a_sequence_reads_and_adds_its_whole_pages(self, key: str, tokens: tuple[int, ...]) -> None:
        path: list[Node] = []
        padded = (*tokens, 9)
        for at in range(0, len(tokens) - PAGE + 1, PAGE):
            parent = path[-1] if path else self.tree.root(key)
            child = self.tree.whole(parent, padded, at)
            if child is None:
                self.made += 1
                stop = at + PAGE
                child = self.tree.add(parent, padded[at:stop], padded[stop], self.made)
                self.keys[child] = key
            else:
                self.tree.hold([child])
            path.append(child)
        self.model[key].update(pages_of(padded if self.strict else tokens, self.strict))
        self.readers.append(Reader(key, path))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def a_sequence_lets_go(self, data: st.DataObject) -> None:
        reader = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        self.tree.let_go(reader.path)

    @rule()
    def the_oldest_idle_page_goes(self) -> None:
        held = {id(node) for reader in self.readers for node in reader.path}
        before = self.tree.idle
        idle = [node for node in self.tree.nodes() if id(node) not in held]
        assert before == len(idle)
        node = self.tree.evict()
        assert (node is None) == (not idle)
        if node is not None:
            assert node in idle
            assert self.tree.idle == before - 1
            prefix = self._prefix(node)
            self.model[self.keys.pop(node)].remove(prefix)

    @invariant()
    def the_tree_is_whole(self) -> None:
        self.tree.check_integrity()

    @rule(key=KEYS, tokens=TOKENS)
    def a_search_finds_the_longest_kept_prefix(self, key: str, tokens: tuple[int, ...]) -> None:
        found = self.tree.find(key, tokens)
        expected = 0
        for prefix in pages_of(tokens, self.strict):
            if prefix not in self.model[key]:
                break
            expected += 1
        assert len(found.nodes) == expected
        at = expected * PAGE
        kept = [prefix for prefix in self.model[key] if prefix[:at] == tokens[:at]]
        rows = [prefix[: at + PAGE] for prefix in kept if len(prefix) >= at + PAGE]
        common = max(
            (common_length(row[at:], tokens, at) for row in rows if tokens[at:]), default=0
        )
        assert found.matched == at + common


class StrictTreeAgainstModel(TreeAgainstModel):
    strict = True


TestTree = TreeAgainstModel.TestCase
TestStrictTree = StrictTreeAgainstModel.TestCase
for case in (TestTree, TestStrictTree):
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
