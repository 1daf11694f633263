"""config.json of a checkpoint, with the text part of a multimodal one found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualify.errors import UsageError


@dataclass(frozen=True)
class Config:
    """root is the file, text its language model's part (the same where there is no other)."""

    root: dict[str, Any]
    text: dict[str, Any]

    @property
    def architecture(self) -> str | None:
        listed = self.root.get("architectures")
        return str(listed[0]) if isinstance(listed, list) and listed else None

    @property
    def quantization(self) -> dict[str, Any] | None:
        found = self.root.get("quantization_config", self.text.get("quantization_config"))
        return found if isinstance(found, dict) else None

    def number(self, *names: str) -> int | None:
        """The first of the names that is a whole number in the text part or at the root."""
        for table in (self.text, self.root):
            for name in names:
                value = table.get(name)
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        return None

    def inner(self, name: str) -> dict[str, Any]:
        found = self.root.get(name)
        return found if isinstance(found, dict) else {}

    def rope(self) -> dict[str, Any]:
        """theta, type and scaling under one set of names, whichever form the file has."""
        told = self.text.get("rope_parameters")
        told = dict(told) if isinstance(told, Mapping) else {}
        scaling = self.text.get("rope_scaling")
        if isinstance(scaling, Mapping):
            told |= scaling
        theta = told.get("rope_theta", self.text.get("rope_theta"))
        kind = told.get("rope_type", told.get("type", "default"))
        yarn = ("factor", "original_max_position_embeddings", "attention_factor", "beta_fast",
                "beta_slow", "mscale", "mscale_all_dim")  # fmt: skip
        kept = {k: _number(told[k]) for k in yarn if told.get(k) is not None}
        return {"rope_theta": _number(theta), "rope_type": kind, **kept}


def read_config(folder: Path) -> Config:
    """Raises UsageError where there is none, or none that can be read."""
    file = folder / "config.json"
    try:
        root = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror or error}.",
            "Name the folder of a checkpoint, with its config.json.",
        ) from None
    except ValueError:
        root = None
    if not isinstance(root, dict):
        raise UsageError(f"{file} is not JSON, or no mapping.", "Fetch it again.")
    text = root.get("text_config")
    return Config(root, text if isinstance(text, dict) else root)


def _number(value: Any) -> Any:
    """4 and 4.0 are one number."""
    return float(value) if isinstance(value, int | float) else value
