"""Integrity and image as verdicts of a run: what was looked at before each side's first launch."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from qualify.checks import image, integrity
from qualify.checks.settings import Settings
from qualify.checks.verdict import Verdict
from qualify.engines.resolve import ResolvedLaunch
from qualify.plan import Plan
from qualify.records.run import Run
from qualify.records.store import load_run
from tests.checks.defects import with_checks
from tests.inspect.made import DRAFTER, TARGET, drafter_shapes, noise, target_shapes, write
from tests.run.drive import drive, engine

DEAD = "candidate_selector.successor_codebook"
BOTH = with_checks({"integrity": True}, {}, ("target-only", "dflash2"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run_with(
    folder: Path, the_plan: Plan, target: Path, drafter: Path | None, *, resume: bool = False
) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    plain = engine(folder)

    def resolver(name: str) -> ResolvedLaunch:
        found = plain("target-only")
        args: dict[str, Any] = {}
        if name == "dflash2":
            args = {"speculative-draft-model-path": str(drafter)}
        return dataclasses.replace(found, model=str(target), mode=name, args=args)

    drive(folder / "run", the_plan, resolver, resume=resume)
    return load_run(folder / "run")


def verdicts(run: Run) -> dict[str, Verdict]:
    return {v.subject: v for v in integrity.check(run, Settings(run.plan.checks))}


def test_a_dead_drafter_tensor_fails_its_side_by_name_and_the_sound_pair_passes(
    tmp_path: Path,
) -> None:
    target = write(tmp_path / "target", TARGET, target_shapes())
    sound = write(tmp_path / "sound", DRAFTER, drafter_shapes())
    dead = write(
        tmp_path / "dead",
        DRAFTER,
        drafter_shapes(),
        lambda n, s: bytes(s) if n == DEAD else noise(n, s),
    )
    bad = verdicts(run_with(tmp_path / "bad", BOTH, target, dead))
    good = verdicts(run_with(tmp_path / "good", BOTH, target, sound))
    assert {s: v.outcome for s, v in bad.items()} == {"target-only": "pass", "dflash2": "fail"}
    assert bad["dflash2"].sentence == f"Drafter: {DEAD} [64, 4] holds nothing but zeros."
    assert {v.outcome for v in good.values()} == {"pass"}
    assert "drafter (dflash2) with 36 tensors" in good["dflash2"].sentence
    files = good["dflash2"].evidence["seen"]["drafter"]["files"]
    assert set(files) == {"config.json", "model.safetensors"}


def test_what_was_looked_at_once_is_not_looked_at_again_by_a_resume(tmp_path: Path) -> None:
    target = write(tmp_path / "target", TARGET, target_shapes())
    the_plan = with_checks({}, {})
    first = run_with(tmp_path / "r", the_plan, target, None)
    lines = (tmp_path / "r" / "run" / "probes.jsonl").read_bytes()
    (tmp_path / "r" / "run" / "cells.jsonl").unlink()
    again = run_with(tmp_path / "r", the_plan, target, None, resume=True)
    assert (tmp_path / "r" / "run" / "probes.jsonl").read_bytes() == lines
    assert verdicts(first)["target-only"].outcome == "pass"
    assert verdicts(again)["target-only"].outcome == "pass"
    assert {entry.launch for entry in again.launches} == {
        "r1.target-only#1",
        "r1.target-only#2",
    }


def test_a_model_that_is_no_checkpoint_is_not_run_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "tokenizer.json").write_text("{}")
    run = run_with(tmp_path / "run", with_checks({"integrity": True}, {}), tmp_path / "empty", None)
    verdict = verdicts(run)["target-only"]
    assert (verdict.outcome, verdict.demanded) == ("not-run", True)
    assert "config.json cannot be read" in verdict.sentence


def test_switched_off_nothing_is_looked_at(tmp_path: Path) -> None:
    target = write(tmp_path / "target", TARGET, target_shapes())
    run = run_with(tmp_path / "run", with_checks({"integrity": False}, {}), target, None)
    assert run.probes == ()


def test_a_gguf_that_was_cut_short_fails_and_the_whole_one_passes(tmp_path: Path) -> None:
    from qualify.engines.fetch import ensure_model
    from qualify.engines.spec import load_engine
    from qualify.errors import QualifyError

    try:
        whole = ensure_model(load_engine("llama-cpp"))
    except QualifyError:
        pytest.skip("llama.cpp's model is not on this machine")
    cut = tmp_path / "cut.gguf"
    shutil.copyfile(whole, cut)
    with cut.open("r+b") as file:
        file.truncate(whole.stat().st_size // 2)
    the_plan = with_checks({"integrity": True}, {})
    good = verdicts(run_with(tmp_path / "good", the_plan, whole, None))["target-only"]
    bad = verdicts(run_with(tmp_path / "bad", the_plan, cut, None))["target-only"]
    assert (good.outcome, bad.outcome) == ("pass", "fail")
    assert "target (gguf) with 272 tensors: nothing is wrong." in good.sentence
    assert "it is cut short" in bad.sentence


def test_an_image_is_not_judged_where_nothing_runs_in_one(tmp_path: Path) -> None:
    target = write(tmp_path / "target", TARGET, target_shapes())
    run = run_with(tmp_path / "run", with_checks({"image": True}, {}), target, None)
    (verdict,) = image.check(run, Settings(run.plan.checks))
    assert (verdict.outcome, verdict.demanded) == ("not-run", True)
    json.dumps(verdict.evidence)
