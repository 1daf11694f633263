"""Read an engine.yaml: strict YAML, unknown keys refused with file, line and a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from qualify.campaign.document import Document, read_document
from qualify.campaign.faults import CampaignFaults, Fault
from qualify.campaign.yaml_text import Genre
from qualify.engines.spec_schema import EngineYaml
from qualify.errors import UsageError


class DefinitionError(UsageError):
    """An engine.yaml that says something unknown, impossible or ambiguous."""

    def __init__(self, message: str, remedy: str, *, file: str, line: int | None = None) -> None:
        self.file = file
        self.line = line
        where = f"{file}:{line}" if line is not None else file
        super().__init__(f"{where}: {message}", remedy)


_GENRE = Genre("an", "engine definition", "name: NAME")


def read_definition(file: Path) -> EngineYaml:
    """The definition in `file`, checked for its shape.

    Raises DefinitionError with the first fault: it is read as strictly as a campaign is.
    """
    try:
        document = read_document(file, _GENRE)
    except CampaignFaults as error:
        raise _refused(error.faults) from None
    if document.faults:
        raise _refused(CampaignFaults(document.faults).faults)
    try:
        return EngineYaml.model_validate(document.value)
    except ValidationError as error:
        raise _explain(error, document) from error


def _refused(faults: Sequence[Fault]) -> DefinitionError:
    first = faults[0]
    return DefinitionError(first.sentence, first.remedy, file=first.file, line=first.line)


def _explain(error: ValidationError, document: Document) -> DefinitionError:
    first = error.errors()[0]
    path, file = first["loc"], document.file
    line = document.line(path)
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
