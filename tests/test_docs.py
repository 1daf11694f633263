"""What the documentation claims about this repository is true of it."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from qualify.cli.app import COMMANDS, cli
from qualify.errors import ExitCode

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_every_test_that_a_rule_names_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (DOCS / "architecture.md").read_text())
    assert len(named) > 30
    missing = [
        f"{file}::{name}"
        for file, name in named
        if f"def {name}(" not in (ROOT / "tests" / file).read_text()
    ]
    assert missing == []


def test_every_exit_code_is_documented() -> None:
    for page in ("cli.md", "architecture.md"):
        text = (DOCS / page).read_text()
        assert [code for code in ExitCode if not re.search(rf"\b{int(code)}\b", text)] == [], page


def test_every_command_and_option_is_documented() -> None:
    text = (DOCS / "cli.md").read_text()
    with click.Context(cli) as context:
        for name in COMMANDS:
            command = cli.get_command(context, name)
            assert command is not None
            assert f"qualify {name}" in text
        run = cli.get_command(context, "run")
    assert run is not None
    options = [o for p in run.params if isinstance(p, click.Option) for o in p.opts]
    assert [o for o in options if f"`{o}" not in text] == []


def test_every_dependency_has_its_reason() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(d for group in extras.values() for d in group)]
    names = [re.split(r"[<>=\[;! ]", d, maxsplit=1)[0] for d in declared]
    text = (DOCS / "dependencies.md").read_text()
    assert [n for n in names if n not in text] == []


def test_every_dependency_is_pinned_to_a_tested_version() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(d for group in extras.values() for d in group)]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    names = [re.split(r"[<>=\[;! ]", d, maxsplit=1)[0].lower().replace("_", "-") for d in declared]
    assert [n for n in names if n not in pinned] == []


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda p: p.name)
def test_every_link_between_pages_has_its_target(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [t for t in targets if not (page.parent / t).exists()] == []
