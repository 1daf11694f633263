"""Texts of installed packages: found, put in order, told apart from notes about the package."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from qualify.errors import UsageError
from qualify.prompts.sources import open_source


def program(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder first on the PATH, with a package manager that knows one package."""
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "b.txt").write_text("Second text. " * 200)
    (texts / "a.txt.gz").write_bytes(gzip.compress(("First text. " * 200).encode()))
    (texts / "copyright.txt").write_text("All of it. " * 300)
    (texts / "short.txt").write_text("A note.")
    (texts / "image.png").write_bytes(b"\x89PNG" * 999)
    (texts / "latin.txt").write_bytes("Café ".encode("latin-1") * 999)
    listed = "".join(f"echo {p}\n" for p in sorted(texts.iterdir(), reverse=True))
    program(tmp_path, "dpkg", f'[ "$2" = novels ] || exit 1\n{listed}')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return tmp_path


def test_the_texts_of_a_package_are_read_in_order_without_notes(here: Path) -> None:
    found = open_source("package:novels")
    assert [Path(d.name).name for d in found.documents] == ["a.txt.gz", "b.txt"]
    assert found.documents[0].text.startswith("First text.")
    assert found.sha256 == open_source("package:novels").sha256


def test_the_bible_is_what_its_own_command_prints(here: Path) -> None:
    program(here, "bible", 'echo "Gen1:1 In the beginning"; echo "Gen1:2 And the earth"')
    (document,) = open_source("package:bible-kjv").documents
    assert document.text == "In the beginning\nAnd the earth"


def test_a_bible_that_fails_says_what_to_install(here: Path) -> None:
    program(here, "bible", 'echo "no data" >&2; exit 1')
    with pytest.raises(UsageError, match="no data"):
        open_source("package:bible-kjv")


def test_a_package_that_is_not_there_is_refused_with_the_ways_to_get_it(here: Path) -> None:
    with pytest.raises(UsageError, match="no text of a package nothing-here") as refused:
        open_source("package:nothing-here")
    assert "apt-get install nothing-here" in refused.value.remedy


def test_a_python_package_gives_its_texts_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = here / "site"
    (site / "plays-1.0.dist-info").mkdir(parents=True)
    (site / "plays").mkdir()
    (site / "plays" / "hamlet.txt").write_text("To be. " * 400)
    (site / "plays-1.0.dist-info" / "METADATA").write_text("Name: plays\nVersion: 1.0\n")
    (site / "plays-1.0.dist-info" / "RECORD").write_text("plays/hamlet.txt,,\n")
    monkeypatch.syspath_prepend(str(site))
    (document,) = open_source("package:plays").documents
    assert document.text.startswith("To be.")
