"""`--checks NAME,NAME`: some checks alone, demanded, with what the campaign says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualify.cli.app import run as qualify

CAMPAIGN = """\
campaign: picked
engine: cuda
profile: small
modes: [target-only]
sampling: {output_tokens: 4}
workloads:
  - {name: w, prompts: {source: corpora/code, tokens: 64, count: 1}, warmup: {count: 0}}
checks: {capacity: {limit: false}, cold: false, parity: true}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    found = tmp_path / "picked.yaml"
    found.write_text(CAMPAIGN)
    return str(found)


def test_only_the_named_checks_are_judged_with_the_campaigns_options(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", file, "--json"]
    assert qualify([*words, "--checks", "capacity,cold", "--checks", "kernels"]) == 0
    picked = json.loads(capsys.readouterr().out)["plan"]
    on = {name: value for name, value in picked["checks"].items() if value is not False}
    assert on == {
        "capacity": {"limit": False, "concurrency": True},
        "cold": True,
        "kernels": True,
    }
    assert picked["checks"]["parity"] is False
    assert qualify(words) == 0
    whole = json.loads(capsys.readouterr().out)["plan"]
    assert whole["hash"] != picked["hash"]


def test_a_name_that_is_no_check_is_refused_with_the_nearest_one(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert qualify(["plan", file, "--checks", "capcity"]) == 2
    assert "Did you mean `capacity`?" in capsys.readouterr().err


def test_the_plan_says_what_checks_have_sent(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert qualify(["plan", file, "--checks", "capacity"]) == 0
    # Two may run together, so a crowd of four prompts of 128 tokens.
    assert "have 4 requests sent (capacity), 512 tokens." in capsys.readouterr().out
