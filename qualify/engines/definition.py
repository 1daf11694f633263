"""Read an engine.yaml: strict YAML, unknown keys refused with file, line and a suggestion."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from qualify.engines.spec_schema import EngineYaml
from qualify.errors import UsageError

Where = dict[tuple[str | int, ...], int]


class DefinitionError(UsageError):
    """An engine.yaml that says something unknown, impossible or ambiguous."""

    def __init__(self, message: str, remedy: str, *, file: str, line: int | None = None) -> None:
        self.file = file
        self.line = line
        where = f"{file}:{line}" if line is not None else file
        super().__init__(f"{where}: {message}", remedy)


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core schema: only true/false are booleans, 012 and 3:30 stay strings."""


_FLOAT = r"^[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*|(?=[eE])))(?:[eE][-+]?[0-9]+)?$"
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|false)$", "tf"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
    (
        "float",
        r"^[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*|(?=[eE])))(?:[eE][-+]?[0-9]+)?$",
        "-+.0123456789",
    ),
    ("null", r"^(?:~|null|)$", "~n"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^$"), [""])


def _lines(node: yaml.Node, file: str, path: tuple[str | int, ...] = ()) -> Where:
    """Line of every key and item; refuses duplicate keys."""
    found: Where = {path: node.start_mark.line + 1}
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                raise DefinitionError(
                    f"{name}: stands twice (first on line {seen[name]})",
                    "Keep one of the two.",
                    file=file,
                    line=line,
                )
            seen[name] = line
            found |= _lines(value, file, (*path, name))
            found[(*path, name)] = line
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found |= _lines(value, file, (*path, index))
    return found


def read_definition(file: Path) -> EngineYaml:
    """The definition in `file`, checked for its shape. Raises DefinitionError."""
    shown = str(file)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{shown} cannot be read: {error.strerror}", "Check the path and its permissions."
        ) from error
    try:
        node = yaml.compose(text, Loader=_Loader)
        where = _lines(node, shown) if node is not None else {}
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise DefinitionError(
            f"not valid YAML: {getattr(error, 'problem', None) or error}",
            "Check indentation, colons and quotes there.",
            file=shown,
            line=mark.line + 1 if mark is not None else None,
        ) from error
    try:
        return EngineYaml.model_validate(data)
    except ValidationError as error:
        raise _explain(error, shown, where) from error


def _explain(error: ValidationError, file: str, where: Where) -> DefinitionError:
    first = error.errors()[0]
    path = first["loc"]
    line = next((where[path[:n]] for n in range(len(path), -1, -1) if path[:n] in where), None)
    dotted = ".".join(str(p) for p in path) or "the file"
    if first["type"] == "extra_forbidden":
        allowed = sorted(_fields(path[:-1]))
        close = difflib.get_close_matches(str(path[-1]), allowed, n=1)
        hint = f"Did you mean {close[0]}?" if close else f"Allowed here: {', '.join(allowed)}."
        return DefinitionError(f"unknown key {dotted}", hint, file=file, line=line)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return DefinitionError(f"{dotted} is missing", "Add it.", file=file, line=line)
    return DefinitionError(f"{dotted}: {message}", "Correct it there.", file=file, line=line)


def _fields(path: tuple[Any, ...]) -> set[str]:
    """Keys that the schema allows at `path`, found by walking the models' annotations."""
    models: list[type[BaseModel]] = [EngineYaml]
    for part in path:
        inner: list[type[BaseModel]] = []
        for model in models:
            if isinstance(part, str) and part in model.model_fields:
                inner += _models_in(model.model_fields[part].annotation)
            else:  # a user's name (profile, mode) or a list index: same model below it
                inner.append(model)
        models = inner
    return {name for model in models for name in model.model_fields}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in get_args(annotation) for model in _models_in(arg)]
