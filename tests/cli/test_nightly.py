# ruff: noqa: F811 (the fixture is shared with test_run)
"""`qualify nightly`, night after night, on the scripted engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qualify.analysis.gate import GateResult
from qualify.cli.nightly import _gated
from qualify.errors import ExitCode
from tests.cli.test_run import ROOT, folder, write  # noqa: F401

CAMPAIGN = """\
campaign: small
engine: %s/engine.yaml
modes: [target-only, mtp]
tokenizer: %s
sampling: {output_tokens: 12}
workloads:
  - name: prose
    prompts: {source: corpora/prose, tokens: 384, count: 2}
gates: {accept_length_regression_pct: 10}
"""


def nightly(folder: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "qualify", "nightly", *words, "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def campaign(folder: Path, engine_options: str = "") -> str:
    write(folder, engine_options)
    file = folder / "c.yaml"
    file.write_text(CAMPAIGN % (folder, folder / "tokenizer.json"))
    return str(file)


def test_two_nights_are_run_gated_and_kept_and_a_worse_third_fails(
    folder: Path,
) -> None:
    pytest.importorskip("duckdb")
    file = campaign(folder)
    code, (first,) = nightly(folder, file)
    assert (code, first["gate"]) == (0, "pass"), first
    assert "no earlier good run" in first["reason"]
    code, (second,) = nightly(folder, file, "--markdown", "night.md")
    assert (code, second["gate"]) == (0, "pass"), second
    assert "| pass |" in (folder / "night.md").read_text()
    kept = {p.parent.name for p in (folder / "reports/history").glob("*/runs.parquet")}
    assert kept == {Path(n["folder"]).name for n in (first, second)}
    # The drafter dies: a check fails that did not.
    engine = folder / "engine.yaml"
    engine.write_text(engine.read_text().replace('accept: "3,0,2"', 'accept: "0"'))
    code, (third,) = nightly(folder, file)
    assert (code, third["gate"]) == (1, "fail"), third
    assert "acceptance" in third["reason"]


def test_a_campaign_that_is_wrong_does_not_cost_the_next_its_night(
    folder: Path,
) -> None:
    bad = folder / "bad.yaml"
    bad.write_text("campaign: bad\nmode: [x]\n")
    code, (wrong, right) = nightly(folder, str(bad), campaign(folder))
    assert wrong["exit_code"] == 2
    assert "bad.yaml" in wrong["reason"]
    assert right["exit_code"] == 0
    assert code == 2


def test_an_engine_that_does_not_start_is_the_nights_result(folder: Path) -> None:
    code, (night,) = nightly(folder, campaign(folder, "no-such-flag: 1"))
    assert (code, night["gate"]) == (3, None)


def test_a_baseline_that_is_no_run_costs_no_night(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qualify", "nightly", campaign(folder), "--baseline", "nowhere"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 2
    assert "nowhere is not a run" in done.stderr
    assert not (folder / "reports").exists()


def test_a_crossed_threshold_decides_the_night_of_a_qualified_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossed = GateResult(
        "fail", ExitCode.NOT_QUALIFIED, "TPOT is worse.", "now", "before", (), (), ()
    )
    monkeypatch.setattr("qualify.cli.gate.judge", lambda *_: crossed)
    night = _gated(Path("c.yaml"), tmp_path, "before", ExitCode.QUALIFIED)
    assert (night.exit_code, night.gate) == (1, "fail")
