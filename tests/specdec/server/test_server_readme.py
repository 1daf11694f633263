from __future__ import annotations

import re
from pathlib import Path

from specdec.serve_command import serve
from specdec.server import ROUTES

README = Path(__file__).parents[3] / "engines/cuda/README.md"


def test_the_readme_names_every_flag_and_no_other() -> None:
    text = README.read_text("utf-8").split("## Serve")[1].split("\n## ")[0]
    named = set(re.findall(r"^\| `(--[a-z0-9-]+)`", text, re.MULTILINE))
    assert named == {option for param in serve.params for option in param.opts}


def test_the_readme_names_every_path() -> None:
    text = README.read_text("utf-8")
    missing = [path for path, _, _ in ROUTES if path.removeprefix("/v1") not in text]
    assert missing == []
