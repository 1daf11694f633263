"""What every page is made with: the templates, and the style sheet and script that are ours."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def environment() -> Environment:
    """Everything is escaped but what `own` gives; a name that is missing is an error."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def own(name: str) -> tuple[Markup, str]:
    """A style sheet or script from the package, the only texts that are not escaped, and the hash
    by which a content-security policy names it."""
    text = (TEMPLATES / name).read_text("utf-8")
    return Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
