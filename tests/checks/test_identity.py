"""A checkpoint or an engine that changes between two launches is caught and named."""

from __future__ import annotations

import dataclasses
from typing import Any

from qualify.checks.identity import check
from qualify.checks.settings import Settings
from qualify.records.run import Run
from qualify.records.schema import LaunchRecord
from tests.factory import Maker, drafting, target


def origin(weights: str = "aa", version: str = "1") -> dict[str, Any]:
    files = {"model.safetensors": {"sha256": weights}, "config.json": {"sha256": "cc"}}
    return {"engine": "cuda", "engine_version": version, "model": {"files": files}}


def run_with(*origins: dict[str, Any]) -> Run:
    run = Maker(sides={"target-only": target(), "mtp": drafting()}, self_parity=False).build()
    launches = list(dict.fromkeys(end.launch for end in run.cells))
    said = tuple(
        LaunchRecord("x", name, name.split("#")[0], 1, "s", "m", "started", "now", facts)
        for name, facts in zip(launches, origins, strict=True)
    )
    return dataclasses.replace(run, launches=said)


def test_a_checkpoint_replaced_between_two_launches_fails_and_is_named() -> None:
    (verdict,) = check(run_with(origin("aa"), origin("bb")), Settings())
    assert verdict.outcome == "fail"
    assert "checkpoint file model.safetensors changed" in verdict.sentence
    assert set(verdict.evidence["differing"]) == {"checkpoint file model.safetensors"}


def test_a_file_that_only_one_launch_had_fails() -> None:
    other = origin()
    other["model"]["files"]["extra.json"] = {"sha256": "dd"}
    (verdict,) = check(run_with(origin(), other), Settings())
    assert verdict.outcome == "fail"
    assert "extra.json" in verdict.sentence


def test_an_engine_of_another_version_fails() -> None:
    (verdict,) = check(run_with(origin(version="1"), origin(version="2")), Settings())
    assert verdict.outcome == "fail"
    assert "engine version" in verdict.sentence


def test_equal_launches_pass_and_say_how_many_files_were_compared() -> None:
    (verdict,) = check(run_with(origin(), origin()), Settings())
    assert verdict.outcome == "pass"
    assert "the hashes of 2 checkpoint files" in verdict.sentence


def test_launches_that_say_nothing_are_not_run_and_never_a_pass() -> None:
    run = Maker(sides={"target-only": target(), "mtp": drafting()}).build()
    run = dataclasses.replace(run, launches=())
    (verdict,) = check(run, Settings())
    assert verdict.outcome == "not-run"
