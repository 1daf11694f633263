"""A YAML file (a campaign, an engine definition) as plain values that remember their lines.

PyYAML parses; nothing of its type guessing is used. Duplicate keys, anchors, aliases, merges,
tags, several documents and keys that are not text are refused, each where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from qualify.campaign.faults import CampaignFaults, Fault, Path
from qualify.campaign.scalars import Trap, resolve
from qualify.campaign.yaml_text import CAMPAIGN, Genre, compose, line_of, whole_file

DEEPEST = 20  # no campaign needs more; it keeps a hostile file from exhausting the stack


@dataclass(frozen=True)
class Place:
    """Where a value stands (lines from 1) and the text it was written as, if a scalar."""

    line: int
    key_line: int
    text: str | None = None


@dataclass
class Document:
    """`value` is made of dict, list, str, int, float, bool and None. `unread` holds paths
    whose value was refused: they have a fault already and no value worth judging."""

    file: str
    value: Any = None
    places: dict[Path, Place] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    unread: set[Path] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)

    def line(self, path: Path) -> int | None:
        """The line of the nearest thing that was really written along `path`."""
        for end in range(len(path), -1, -1):
            place = self.places.get(path[:end])
            if place is not None:
                return place.key_line
        return None

    def fault(self, path: Path, sentence: str, remedy: str) -> None:
        """Note a fault at `path`, unless what stands there was refused already."""
        if any(path[: len(u)] == u for u in self.unread):
            return
        self.faults.append(Fault(self.file, self.line(path), sentence, remedy))

    def get(self, path: Path) -> Any:
        """The value at `path`, or None where nothing (readable) stands there."""
        here = self.value
        for step in path:
            if not holds(here, step):
                return None
            here = here[step]
        return here


def holds(value: Any, step: str | int) -> bool:
    """Can `value` be indexed with `step`?"""
    if isinstance(value, list):
        return isinstance(step, int) and step < len(value)
    return isinstance(value, dict) and step in value


def read_document(path: FilePath, genre: Genre = CAMPAIGN) -> Document:
    """Read `path`; faults of single values are collected, an unreadable file raises."""
    shown = str(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        remedy = "Check the path; `ls` shows what is there."
        raise whole_file(shown, "there is no such file", remedy) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise whole_file(
            shown, f"it cannot be read: {reason}", "Give a readable YAML file."
        ) from None
    return parse_document(data, shown, genre)


def parse_document(data: bytes, file: str, genre: Genre = CAMPAIGN) -> Document:
    """The same, from bytes; `file` is the name that faults carry."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        fault = Fault(file, line, "this is not UTF-8 text", "Save the file as UTF-8.")
        raise CampaignFaults([fault]) from None
    node = compose(text, file, genre)
    document = Document(file)
    if not isinstance(node, MappingNode):
        found = "nothing" if node is None else _kind(node)
        at = None if node is None else line_of(node)
        sentence = f"{genre.article} {genre.noun} is a mapping of keys; this file holds {found}"
        raise CampaignFaults([Fault(file, at, sentence, f"Start with `{genre.start}`.")])
    _refuse_copies_and_tags(text, document)
    document.value = _read(node, (), line_of(node), document)
    return document


def _refuse_copies_and_tags(text: str, document: Document) -> None:
    def refuse(event: yaml.Event, sentence: str, remedy: str) -> None:
        line = event.start_mark.line + 1 if event.start_mark else None
        document.faults.append(Fault(document.file, line, sentence, remedy))

    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            sentence = f"`*{anchor}` copies another part of the file"
            refuse(event, sentence, "Write the value out: each line says it all.")
        elif anchor:
            sentence = f"`&{anchor}` names a part of the file for copying"
            refuse(event, sentence, "Remove it and write values out.")
        if tag:
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            refuse(event, f"`{shown}` forces a type", "Remove the tag; quote what is text.")


def _read(node: Node, path: Path, key_line: int, document: Document) -> Any:
    line = line_of(node)
    text = node.value if isinstance(node, ScalarNode) else None
    document.places[path] = Place(line, key_line, text)
    if len(path) > DEEPEST:
        return _refuse(document, path, "this is nested too deeply", "Write it flat.")
    if id(node) in document.seen:  # an alias, refused already; expanding it could be endless
        document.unread.add(path)
        return None
    document.seen.add(id(node))
    if isinstance(node, MappingNode):
        return dict(_pairs(node, path, document))
    if isinstance(node, SequenceNode):
        return [
            _read(item, (*path, i), line_of(item), document) for i, item in enumerate(node.value)
        ]
    assert isinstance(node, ScalarNode)
    if node.style is not None:  # quoted or a block: text, whatever it looks like
        return node.value
    value = resolve(node.value)
    if isinstance(value, Trap):
        return _refuse(document, path, value.what, value.write[0].upper() + value.write[1:] + ".")
    return value


def _pairs(node: MappingNode, path: Path, document: Document) -> Iterator[tuple[str, Any]]:
    first: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = line_of(key_node)
        key = _key(key_node, document)
        if key is None:
            if path and not isinstance(key_node, ScalarNode):
                document.unread.add(path)  # what stands here cannot be judged
            continue
        if key in first:
            sentence = f"`{key}` is written twice (first in line {first[key]})"
            document.faults.append(
                Fault(document.file, line, sentence, "Keep one: the other would be lost silently.")
            )
            continue
        first[key] = line
        yield key, _read(value_node, (*path, key), line, document)


def _key(node: Node, document: Document) -> str | None:
    line = line_of(node)
    if not isinstance(node, ScalarNode):
        braces = "If this is a `{{ placeholder }}`, write the value itself."
        document.faults.append(Fault(document.file, line, "a key must be one word", braces))
        return None
    if node.style is not None:
        return str(node.value)
    value = resolve(node.value)
    if isinstance(value, str):
        return value
    if node.value == "<<":
        document.faults.append(
            Fault(document.file, line, "`<<` merges another mapping", "Write its keys out here.")
        )
        return None
    sentence = f"the key `{node.value}` is not read as text by every YAML reader"
    document.faults.append(Fault(document.file, line, sentence, f'Quote it: "{node.value}".'))
    return None


def _refuse(document: Document, path: Path, sentence: str, remedy: str) -> None:
    document.fault(path, sentence, remedy)
    document.unread.add(path)


def _kind(node: Node) -> str:
    return "a list" if isinstance(node, SequenceNode) else "a single value"
