"""Where the bundled data lies: beside the package in a checkout, inside it in a wheel.

A wheel carries `engines/`, `campaigns/` and `fixtures/` under `qualify/_data/`; a checkout
(and an editable install of one) has them at its root. Nothing else may guess at paths.
"""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_root() -> Path:
    """The folder that holds `engines/`, `campaigns/` and `fixtures/`."""
    bundled = _PACKAGE / "_data"
    return bundled if bundled.is_dir() else _PACKAGE.parent


def engines_dir() -> Path:
    """One folder an engine, each with its engine.yaml."""
    return data_root() / "engines"


def campaigns_dir() -> Path:
    """The campaigns that come with the project."""
    return data_root() / "campaigns"


def corpora_dir() -> Path:
    """Texts that prompts are cut from, with their licences."""
    return data_root() / "fixtures" / "corpora"


def models_dir() -> Path:
    """The small trained checkpoints of the bundled engine."""
    return data_root() / "fixtures" / "models"


def cache_dir() -> Path:
    """Where fetched models are kept: XDG's cache folder, `qualify` inside it. Not created here."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "qualify"
