"""`qualify doctor` says each thing once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from qualify.cli.app import cli
from qualify.doctor import containers


def findings(monkeypatch: pytest.MonkeyPatch, host: str) -> list[dict[str, str]]:
    monkeypatch.setenv("DOCKER_HOST", host)
    result = CliRunner().invoke(cli, ["doctor", "--json"])
    found: list[dict[str, str]] = json.loads(result.output)["findings"]
    return found


def test_docker_has_one_row_whether_or_not_an_engine_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = findings(monkeypatch, f"unix://{tmp_path}/none.sock")
    assert Counter(f["name"] for f in found)["docker"] == 1
    (row,) = [f for f in found if f["name"] == "docker"]
    assert row["level"] == "ok"
    assert "Only engines in containers need it" in row["says"]


def test_a_socket_that_is_closed_to_this_user_is_a_warning_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed = tmp_path / "docker.sock"
    closed.touch()
    monkeypatch.setattr(containers, "SOCKET", closed)
    monkeypatch.setattr(containers, "DEFAULT", f"unix://{closed}")
    monkeypatch.setattr("os.access", lambda path, mode: path != closed)
    (row,) = [f for f in findings(monkeypatch, f"unix://{closed}") if f["name"] == "docker"]
    assert row["level"] == "warn"
    assert "group docker" in row["remedy"]
