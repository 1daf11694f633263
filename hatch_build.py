"""Puts engines, campaigns and fixtures inside a wheel, where `qualify.paths` looks for them.

An editable install needs none of this: there the checkout itself is the data root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA = "qualify/_data"
LEFT_OUT = {"__pycache__", ".cache"}


class BundleData(BuildHookInterface[Any]):
    """Maps each data file to its place under qualify/_data/."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or self.target_name != "wheel":
            return
        root = Path(self.root)
        fixtures = ("fixtures/corpora", "fixtures/models", "fixtures/problems")
        for folder in ("engines", "campaigns", *fixtures):
            for file in sorted((root / folder).rglob("*")):
                part = file.relative_to(root)
                if file.is_file() and not LEFT_OUT & set(part.parts) and not _is_package(file):
                    build_data["force_include"][str(file)] = f"{DATA}/{part.as_posix()}"


def _is_package(file: Path) -> bool:
    """The bundled engine's Python package is installed as a package, not as data."""
    return "specdec" in file.parts
