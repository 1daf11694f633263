"""`qualify inspect CHECKPOINT`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualify.cli.app import run as qualify
from tests.inspect.made import DRAFTER, TARGET, drafter_shapes, target_shapes, write


def test_a_sound_pair_passes_and_a_dead_tensor_fails_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = str(write(tmp_path / "target", TARGET, target_shapes()))
    drafter = str(write(tmp_path / "drafter", DRAFTER, drafter_shapes()))
    assert qualify(["inspect", target]) == 0
    said = capsys.readouterr().out
    assert "nothing is wrong with what was looked at" in said
    assert "  model.safetensors" in said
    assert qualify(["inspect", drafter, "--target", target, "--kind", "dflash2"]) == 0
    capsys.readouterr()
    dead = str(write(tmp_path / "dead", DRAFTER, drafter_shapes(), lambda n, s: bytes(s)))
    assert qualify(["inspect", dead, "--target", target]) == 1
    assert "fc.weight [32, 64] holds nothing but zeros" in " ".join(capsys.readouterr().out.split())


def test_a_drafter_without_its_target_is_not_judged_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drafter = str(write(tmp_path / "drafter", DRAFTER, drafter_shapes()))
    assert qualify(["inspect", drafter, "--no-hashes", "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["faults"]) == ("dflash2", [])
    assert "--target DIR" in told["unjudged"][0]


def test_a_folder_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    assert qualify(["inspect", str(tmp_path / "nothing")]) == 2
