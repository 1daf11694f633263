"""`qualify run` as a user starts it, on the scripted engine: measured, judged, interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from qualify.errors import ExitCode
from tests.scripted_engine.process import EngineProcess

ROOT = Path(__file__).parents[2]

ENGINE = """\
name: scripted
protocol: sglang
alias: scripted
launch:
  process:
    argv: ["{python}", "-m", tests.scripted_engine, "--port", "{port}", "--model", "{alias}",
           "{args}"]
    cwd: "%s"
  attach: {}
modes:
  target-only: {drafter: none, args: {%s}}
  mtp: {drafter: model, args: {accept: "3,0,2", %s}}
grace: {stop_s: 5, flush_s: 3}
"""

CAMPAIGN = """\
campaign: small
engine: %s/engine.yaml
modes: [target-only, mtp]
tokenizer: %s
sampling: {output_tokens: 12}
workloads:
  - name: prose
    prompts: {source: corpora/prose, tokens: [384, 768], count: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A campaign, an engine definition and a tokenizer with one token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    bytes_only.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, "")
    return tmp_path


def write(folder: Path, options: str) -> None:
    (folder / "engine.yaml").write_text(ENGINE % (ROOT, options, options))
    (folder / "c.yaml").write_text(CAMPAIGN % (folder, folder / "tokenizer.json"))


def command(folder: Path, *words: str) -> list[str]:
    run = ["run", str(folder / "c.yaml"), "--out", str(folder / "run")]
    return [sys.executable, "-m", "qualify", *run, *words]


def qualify(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *words),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )


def finished(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "run" / "cells.jsonl").read_text().splitlines()
    ends = [json.loads(line) for line in lines]
    return [(e["launch"].split("#")[0], e["cell"]) for e in ends if e["status"] == "finished"]


EVERY_CELL = {
    (launch, f"prose@{tokens}/c1")
    for launch in ("r1.target-only", "r1.mtp", "r1.target-only.again")
    for tokens in (384, 768)
}


def test_a_run_measures_every_cell_judges_it_and_ends_with_its_outcome(folder: Path) -> None:
    done = qualify(folder, "--json")
    summary = json.loads(done.stdout)
    assert done.returncode == summary["outcome"]["exit_code"], done.stderr
    assert sorted(finished(folder)) == sorted(EVERY_CELL)
    told = {json.loads(x)["event"] for x in done.stderr.splitlines() if x.startswith("{")}
    assert {"RunStarted", "LaunchReady", "CellEnded"} <= told
    for name in ("campaign.yaml", "plan.json", "verdicts.json", "summary.json", "report.html"):
        assert (folder / "run" / name).is_file(), name
    again = qualify(folder, "--resume")
    assert again.returncode == done.returncode
    assert sorted(finished(folder)) == sorted(EVERY_CELL), "no finished cell is measured twice"


def test_ctrl_c_ends_in_seconds_with_130_and_a_resume_completes_the_plan(folder: Path) -> None:
    write(folder, "step-ms: 60")
    process = subprocess.Popen(
        command(folder, "--only", "workload=prose"),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "finished" in line:  # one cell is done, the next is in flight
                break
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert time.monotonic() - asked < 15
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == ExitCode.INTERRUPTED
    pids = engines_of(folder)
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)
    kept = finished(folder)
    assert 1 <= len(kept) < len(EVERY_CELL)
    assert f"--resume --out {folder / 'run'} --only workload=prose\n" in told
    done = qualify(folder, "--resume", "--only", "workload=prose")
    assert done.returncode in (0, 1, 4), done.stderr
    assert sorted(finished(folder)) == sorted(EVERY_CELL), "each planned cell exactly once"


def engines_of(folder: Path) -> list[int]:
    """Pids of every engine that the run started, as it wrote them down."""
    lines = (folder / "run" / "launches.jsonl").read_text().splitlines()
    started = [json.loads(line) for line in lines]
    return [entry["origin"]["pid"] for entry in started if entry["status"] == "started"]


def test_a_resume_after_a_change_is_refused_and_names_it(folder: Path) -> None:
    words = ("--only", "mode=target-only", "tokens=384")
    qualify(folder, *words)
    file = folder / "c.yaml"
    file.write_text(file.read_text().replace("output_tokens: 12", "output_tokens: 13"))
    done = qualify(folder, "--resume", *words)
    assert done.returncode == ExitCode.USAGE
    assert "the campaign file differs" in done.stderr
    other = qualify(folder, "--resume", "--only", "mode=target-only")
    assert "the --only filter differs" in other.stderr


def test_a_running_server_is_measured_where_it_is_and_left_running(folder: Path) -> None:
    with EngineProcess("--dialect", "sglang") as engine:
        done = qualify(folder, "--attach", engine.url, "--only", "mode=target-only", "tokens=384")
        assert finished(folder) == [("r1.target-only", "prose@384/c1")], done.stderr
        assert psutil.pid_exists(engine.pid)
    assert len(engine.truth) >= 3, "the attached engine itself saw the requests"


def test_an_engine_that_cannot_start_ends_with_3_and_its_last_words(folder: Path) -> None:
    write(folder, "no-such-option: 1")
    done = qualify(folder, "--only", "mode=target-only", "tokens=384")
    assert done.returncode == ExitCode.ENGINE_FAILED
    assert "no-such-option" in done.stderr


@pytest.mark.parametrize("out", ["/proc/no-such-run", "/dev/null/run"])
def test_a_folder_that_cannot_be_written_is_told_with_a_remedy(folder: Path, out: str) -> None:
    done = qualify(folder, "--yes", "--only", "mode=target-only", "--out", out)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert out in done.stderr
    assert "permissions" in done.stderr
